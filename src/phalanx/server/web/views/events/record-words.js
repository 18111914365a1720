// A record of the journal in one line.
import { counted, shortened } from "../../core/format.js";

const BESIDE = new Set(["type", "job", "action"]);
const NAMED_MAX = 8;

const listed = (ids) => `${ids.slice(0, NAMED_MAX).join(", ")}${ids.length > NAMED_MAX ? ` and ${ids.length - NAMED_MAX} more` : ""}`;

const jobsOf = (parts) => [...new Set(parts.map((part) => String(part.job ?? part.id?.[1] ?? "")))].filter(Boolean);

const decision = (body) => {
  const actions = body.actions ?? [];
  const stops = actions.filter((each) => each.type === "Stop");
  const parts = [
    body.claims?.length && `gives devices to ${listed(jobsOf(body.claims))}`,
    stops.length && `stops ${listed(jobsOf(stops))}`,
    ...["Suspend", "Resume", "Resize"].map((type) => actions.some((each) => each.type === type) && `${type.toLowerCase()}s ${listed(jobsOf(actions.filter((each) => each.type === type)))}`),
    body.withdrawn?.length && `withdraws ${listed(body.withdrawn)}`,
    body.reservations?.length && `reserves for ${listed(jobsOf(body.reservations))}`,
    body.verdicts?.length && `new reasons for ${counted(body.verdicts.length, "kind")} of pending jobs`,
    body.reservations?.length === 0 && "reserves nothing any more",
    body.head && `all else waits behind ${body.head}`,
    body.exhaustive === false && "search cut short",
  ];
  return parts.filter(Boolean).join("; ") || "changes nothing";
};

const submitted = ({ job }) => `${job.name || "without a name"}, ${job.queue ?? "default"}${job.user ? `, by ${job.user}` : ""}`;

const plain = (body) =>
  Object.entries(body)
    .filter(([key, value]) => !BESIDE.has(key) && value !== "" && value !== null && (typeof value !== "object" || Array.isArray(value)))
    .map(([key, value]) => `${key} ${Array.isArray(value) ? `(${value.length})` : value}`)
    .join(", ");

const action = (body) => `attempt ${body.action[2]}${plain(body) && `: ${plain(body)}`}`;

export const recordWords = ({ type, body }) => {
  if (type === "Decision") return decision(body);
  if ((type === "JobSubmitted" || type === "JobChanged") && body.job) return shortened(submitted(body), 200);
  return shortened(Array.isArray(body.action) ? action(body) : plain(body), 300);
};

// The jobs that a record is about, to be linked to.
export const jobsIn = ({ job, body }) => (job ? [job] : jobsOf([...(body.claims ?? []), ...(body.actions ?? []), ...(body.reservations ?? [])]).slice(0, NAMED_MAX));
