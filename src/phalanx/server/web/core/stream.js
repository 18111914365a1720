// Reads the event stream of the server and tells, in batches, which jobs and nodes records were about. It runs in a
// worker that all tabs share, or in the page where there is none.
const FLUSH_MS = 100;
const JOBS_MAX = 500;
const AGAIN_MS = [300, 600, 1_200, 2_500, 5_000, 10_000];
const SILENT_MS = 45_000;
const ABOUT_JOBS = ["claims", "actions", "verdicts", "reservations"];

const jobOf = (part) => {
  if (part.job !== undefined) return typeof part.job === "object" && part.job ? part.job.id : part.job;
  return (part.action ?? part.id)?.[1];
};

const jobsIn = (body) =>
  (body.type === "Decision" ? ABOUT_JOBS.flatMap((key) => (body[key] ?? []).map(jobOf)) : [jobOf(body)]).filter(Boolean);

const emptyBatch = () => ({ records: 0, jobs: new Set(), nodes: new Set(), types: new Set(), many: false, gap: false, figures: false, seq: 0 });

export class Stream {
  #onBatch;
  #onState;
  #seq = null;
  #abort = null;
  #failures = 0;
  #timer = 0;
  #batch = emptyBatch();
  #flushTimer = 0;
  #flushed = -FLUSH_MS;
  #watchdog = 0;

  constructor(onBatch, onState) {
    this.#onBatch = onBatch;
    this.#onState = onState;
  }

  open() {
    this.close();
    this.#read();
  }

  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watchdog);
    this.#abort?.abort();
    this.#abort = null;
  }

  // Another account sees other records.
  forget() {
    this.close();
    this.#seq = null;
    this.#batch = emptyBatch();
  }

  async #read() {
    const abort = new AbortController();
    this.#abort = abort;
    try {
      const headers = this.#seq === null ? {} : { "Last-Event-ID": String(this.#seq) };
      const response = await fetch("/api/v1/events?live=true", { headers, signal: abort.signal, cache: "no-store" });
      if (response.status === 401 || response.status === 403) return this.#onState({ connected: false, refused: response.status });
      if (!response.ok) throw new Error(`events: ${response.status}`);
      this.#failures = 0;
      this.#onState({ connected: true });
      await this.#follow(response.body.pipeThrough(new TextDecoderStream()).getReader());
      throw new Error("the stream ended");
    } catch {
      if (this.#abort !== abort) return;
      this.#abort = null;
      const wait_ms = AGAIN_MS[Math.min(this.#failures++, AGAIN_MS.length - 1)];
      this.#onState({ connected: false, again_ms: wait_ms });
      this.#timer = setTimeout(() => this.#read(), wait_ms);
    }
  }

  async #follow(reader) {
    let rest = "";
    for (;;) {
      this.#expectMore();
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      let from = 0;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n", from)) {
        this.#take(rest.slice(from, end));
        from = end + 2;
      }
      rest = rest.slice(from);
    }
  }

  // A comment comes every 5 s: a connection that is silent for longer is dead, even if nothing has closed it.
  #expectMore() {
    clearTimeout(this.#watchdog);
    const abort = this.#abort;
    this.#watchdog = setTimeout(() => {
      if (this.#abort === abort) this.open();
    }, SILENT_MS);
  }

  #take(block) {
    let data = "";
    let type = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("data:")) data += line.slice(5);
      else if (line.startsWith("event:")) type = line.slice(6).trim();
      else if (line.startsWith("id:")) this.#seq = Number(line.slice(3));
    }
    if (!data) return;
    if (type === "gap") this.#batch.gap = true;
    else if (type === "figures") this.#batch.figures = true;
    else if (type === "changes") this.#noteMany(JSON.parse(data));
    else this.#note(JSON.parse(data));
    this.#schedule();
  }

  #note(body) {
    const batch = this.#batch;
    batch.records += 1;
    batch.seq = this.#seq;
    batch.types.add(body.type);
    if (typeof body.node === "string") batch.nodes.add(body.node);
    this.#noteJobs(jobsIn(body));
  }

  // Under load the server names the jobs of many records at once, and no nodes: then any may have changed.
  #noteMany({ seq, types, jobs, more }) {
    const batch = this.#batch;
    for (const [type, count] of Object.entries(types)) {
      batch.records += count;
      batch.types.add(type);
      if (/^(Node|Device)/.test(type)) batch.nodes.add("");
    }
    batch.seq = seq;
    batch.many ||= more;
    this.#noteJobs(jobs);
  }

  #noteJobs(jobs) {
    for (const job of jobs) {
      if (this.#batch.jobs.size < JOBS_MAX) this.#batch.jobs.add(String(job));
      else this.#batch.many = true;
    }
  }

  // The first record after a pause is told at once, those of a burst together. A clock that is set back delays nothing.
  #schedule() {
    if (this.#flushTimer) return;
    const due_ms = Math.max(0, this.#flushed + FLUSH_MS - performance.now());
    this.#flushTimer = setTimeout(() => this.#flush(), due_ms);
  }

  #flush() {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = 0;
    this.#flushed = performance.now();
    const { jobs, nodes, types, ...rest } = this.#batch;
    this.#batch = emptyBatch();
    this.#onBatch({ ...rest, jobs: [...jobs], nodes: [...nodes], types: [...types] });
  }
}
