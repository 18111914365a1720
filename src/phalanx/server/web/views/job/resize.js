// Resizes a job as it was when the user was asked: if another user has changed it meanwhile, the server refuses by
// If-Match. Once refused, the user has been told, and the next try is about the job as it is then.
import { pathOf, post } from "../../core/api.js";
import { useState } from "../../core/dom.js";

// A new reason or forecast is no other job.
const decided = (job) => JSON.stringify([job.state, job.spec.gang]);

export const useResize = (job) => {
  const [asked, setAsked] = useState(job);
  return async (body) => {
    const { version } = asked && decided(asked) !== decided(job) ? asked : job;
    try {
      await post(pathOf`/jobs/${job.id}:resize`, body, { headers: { "If-Match": `"${version}"` } });
    } catch (error) {
      setAsked(null);
      throw error;
    }
  };
};
