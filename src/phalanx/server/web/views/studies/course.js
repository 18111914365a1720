// How far studies are. No record says so: they are asked for while one is under way, and then no more.
import { useData } from "../../core/data.js";
import { html, useEffect } from "../../core/dom.js";
import { number } from "../../core/format.js";

const EVERY_MS = 1_000;

export const isUnderWay = (study) => study.state === "queued" || study.state === "running";

export const useCourse = (path, list) => {
  const source = useData(path);
  const under = source.data !== null && list(source.data).some(isUnderWay);
  useEffect(() => {
    if (!under) return undefined;
    const timer = setInterval(source.reload, EVERY_MS);
    return () => clearInterval(timer);
  }, [under, path]);
  return source;
};

const KINDS = { queued: "waiting", running: "running", done: "succeeded", failed: "failed", cancelled: "cancelled" };

export const StudyMark = ({ state }) => html`<span class="state state-${KINDS[state]}">${state}</span>`;

const of = { compare: ["of", "jobs have ended"], capacity: ["", "runs"] };

export const Progress = ({ study }) => {
  const known = study.total > 0;
  const told = known ? `${number(study.done)} of ${number(study.total)} jobs` : study.done > 0 ? `${number(study.done)} ${of[study.kind][1]}` : "";
  return html`
    <div class="study-progress"><progress aria-label="How far the study is" max=${known ? study.total : undefined} value=${known ? study.done : undefined}></progress>
      <span>${study.state === "queued" ? "It waits until another study has ended." : [told, study.text].filter(Boolean).join("; ") || "It begins…"}</span></div>`;
};
