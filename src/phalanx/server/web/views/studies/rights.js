// Who may begin a study: it takes processor and disk of the server.
import { session } from "../../core/session.js";

export const mayBegin = () => Boolean(session.value?.scopes.includes("write"));
