// The session of this browser: null while it is not known, {user: null} without one.
import { Store } from "./store.js";

export const session = new Store(null);
