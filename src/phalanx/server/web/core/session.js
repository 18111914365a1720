// Logging in and out, and what the account may do.
import { get, post, remove } from "./api.js";
import { holdClock } from "./clock.js";
import { shownMoment } from "./moment.js";
import { session } from "./session-store.js";

export { session };

const NOBODY = { user: null, roles: [], scopes: [], csrf: "", file: null, ended: false, leaving: false };
const ORDER = ["viewer", "member", "operator", "admin"];
const SCOPE = { viewer: "read", member: "write", operator: "write", admin: "admin" };

// Asked first: without a session every key is null.
export const resume = async () => {
  const known = await get("/session");
  if (known.file) holdClock(known.file.last_ms);
  session.set({ ...NOBODY, ...known });
};

// Whether a journal is shown in place of a server's own state.
export const showsFile = () => Boolean(session.value?.file);

export const logIn = async (credentials) => session.set({ ...NOBODY, ...(await post("/session", credentials)) });

// The views go first, with what they still ask for: an answer to that would be a refusal.
export const logOut = async () => {
  const before = session.value;
  session.set({ ...before, leaving: true });
  await new Promise((resolve) => setTimeout(resolve));
  try {
    await remove("/session");
  } catch (error) {
    if (error.status !== 401) {
      session.set(before);
      throw error;
    }
  }
  session.set(NOBODY);
};

const liesIn = (queue, root) => root === "" || queue === root || queue.startsWith(`${root}/`);

// Whether what is shown is over: a journal, or a past moment.
export const looksBack = () => showsFile() || shownMoment() !== null;

// In the past nothing can be changed.
const isPast = (role) => role !== "viewer" && shownMoment() !== null;

export const may = (role, queue = "") => {
  if (isPast(role)) return false;
  const { roles, scopes } = session.value ?? NOBODY;
  const needed = ORDER.indexOf(role);
  return (
    scopes.includes(SCOPE[role]) && roles.some((each) => ORDER.indexOf(each.role) >= needed && liesIn(queue, each.queue))
  );
};

export const mayAnywhere = (role) => {
  if (isPast(role)) return false;
  const { roles, scopes } = session.value ?? NOBODY;
  return scopes.includes(SCOPE[role]) && roles.some((each) => ORDER.indexOf(each.role) >= ORDER.indexOf(role));
};

export const mayChange = (job) =>
  may("operator", job.queue) || (job.user === session.value?.user && may("member", job.queue));
