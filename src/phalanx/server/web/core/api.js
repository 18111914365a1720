// Requests to the server, and what can come of them.
import { learnTime } from "./clock.js";
import { shownMoment } from "./moment.js";
import { session } from "./session-store.js";

const BASE = "/api/v1";
const PRESENT = new Set(["/session", "/past"]);
const SAFE = new Set(["GET", "HEAD"]);

export class ApiError extends Error {
  constructor(status, code, message, detail = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.waits_s = 1;
  }

  get retryAfter_s() {
    return this.detail?.retry_after_s ?? this.waits_s;
  }
}

const failureOf = async (response) => {
  const body = await response.json().catch(() => null);
  const message = body?.message ?? `the server answered ${response.status}`;
  const error = new ApiError(response.status, body?.code ?? "", message, body?.detail ?? null);
  // A proxy in between says it in the header alone.
  error.waits_s = Number.parseInt(response.headers.get("Retry-After"), 10) || 1;
  return error;
};

const reach = async (url, init) => {
  try {
    return await fetch(url, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the server cannot be reached");
  }
};

// All that is read is read of the moment that is shown.
const ofMoment = (method, path) => {
  const at_ms = method === "GET" && !PRESENT.has(path) ? shownMoment() : null;
  return at_ms === null ? path : `${path}${path.includes("?") ? "&" : "?"}at=${at_ms}`;
};

export const send = async (method, path, { body, headers = {}, signal } = {}) => {
  const sent = { ...headers };
  const isFile = body instanceof Blob;
  if (isFile) sent["Content-Type"] = "application/octet-stream";
  else if (typeof body === "string") sent["Content-Type"] ??= "application/yaml";
  else if (body !== undefined) sent["Content-Type"] = "application/json";
  if (!SAFE.has(method) && session.value?.csrf) sent["X-CSRF-Token"] = session.value.csrf;
  const content = isFile || typeof body === "string" || body === undefined ? body : JSON.stringify(body);
  const response = await reach(BASE + ofMoment(method, path), { method, headers: sent, body: content, signal, cache: "no-store" });
  learnTime(response.headers.get("Date"));
  if (response.ok) return response;
  if (response.status === 401 && session.value?.user) session.set({ ...session.value, ended: true });
  throw await failureOf(response);
};

const asJson = async (response) => (response.status === 204 ? null : response.json());

export const get = async (path, options) => asJson(await send("GET", path, options));
export const post = async (path, body = {}, options = {}) => asJson(await send("POST", path, { ...options, body }));
export const put = async (path, body, options = {}) => asJson(await send("PUT", path, { ...options, body }));
export const patch = async (path, body) => asJson(await send("PATCH", path, { body }));
export const remove = async (path) => asJson(await send("DELETE", path));

// A path with what users made up in it.
export const pathOf = (strings, ...parts) =>
  strings.reduce((path, text, at) => path + text + (at < parts.length ? encodeURIComponent(parts[at]) : ""), "");

export const queryOf = (values) => {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, value);
  }
  const text = query.toString();
  return text && `?${text}`;
};
