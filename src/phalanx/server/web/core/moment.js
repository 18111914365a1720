// The past moment that the address names, if it names one.
import { route } from "./route.js";

export const momentIn = (query) => (/^\d{1,16}$/.test(query.at ?? "") ? Number(query.at) : null);

// What is in the address where a moment should be.
export const badMoment = (query) => (query.at && momentIn(query) === null ? query.at : null);

export const shownMoment = () => momentIn(route.value.query);
