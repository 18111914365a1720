// What a task printed, as lines: read as it grows, bounded in memory, continued after a broken connection.
import { pathOf, queryOf, send } from "../../core/api.js";

const TAIL_BYTES = 4 << 20;
const LINES_MAX = 100_000;
const LINE_MAX = 4_000;

// A line of 5 MB would stop the browser; its beginning tells enough, and the file has the rest.
const bounded = (line) => (line.length > LINE_MAX ? `${line.slice(0, LINE_MAX)}… (${line.length.toLocaleString()} characters)` : line);

export class LogText {
  lines = [];
  dropped = 0;
  #open = "";
  #offset = null;
  #begun = false;
  #abort = null;

  constructor(job, choice, onChange) {
    this.job = job;
    this.choice = choice;
    this.onChange = onChange;
  }

  // Ends when the attempt has ended; throws when the connection breaks. It goes on where it was when called again.
  async follow() {
    this.#abort = new AbortController();
    const where = this.#offset === null ? { tail: TAIL_BYTES } : { offset: this.#offset };
    const query = queryOf({ ...this.choice, ...where, follow: true });
    const response = await send("GET", pathOf`/jobs/${this.job}/logs` + query, { signal: this.#abort.signal });
    this.#offset ??= Number(response.headers.get("X-Phalanx-Offset"));
    if (!this.#begun && this.#offset > 0) this.dropped = -1;
    this.#begun = true;
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      this.#offset += value.length;
      this.#take(decoder.decode(value, { stream: true }));
    }
  }

  stop() {
    this.#abort?.abort();
  }

  // What follows a carriage return overwrites the line, as progress bars do.
  #take(text) {
    const parts = (this.#open + text).split("\n");
    this.#open = parts.pop();
    if (this.#open.length > 4 * LINE_MAX) this.#open = bounded(this.#open);
    for (const part of parts) this.lines.push(bounded(part.replace(/\r$/, "").replace(/^.*\r/, "")));
    if (this.lines.length > LINES_MAX) {
      const most = this.lines.length - LINES_MAX;
      this.lines.splice(0, most);
      this.dropped = Math.max(0, this.dropped) + most;
    }
    this.onChange();
  }

  get shown() {
    return this.#open ? [...this.lines, bounded(this.#open.replace(/^.*\r/, ""))] : this.lines;
  }
}
