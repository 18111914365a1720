// What a queue is allotted, has and borrows, in whole and parts of GPUs; null where nothing is said.
const gpus = (permille) => (permille === null || permille === undefined ? null : permille / 1_000);

export const nameOf = (queue) => queue.name.split("/").at(-1);
export const depthOf = (queue) => queue.name.split("/").length - 1;
export const guaranteed = (queue) => queue.virtual_cluster?.gpus ?? gpus(queue.quota?.guaranteed?.gpus_permille);
export const nominal = (queue) => gpus(queue.quota?.deserved?.gpus_permille) ?? guaranteed(queue);
export const limit = (queue) => gpus(queue.quota?.limit?.gpus_permille);
export const used = (queue) => gpus(queue.quota_used?.gpus_permille) ?? queue.gpus_used;
export const weight = (queue) => queue.quota?.weight ?? null;

// Beyond the nominal quota: another queue may want it back.
export const borrowed = (queue) => {
  const own = nominal(queue);
  return own === null ? null : Math.max(0, used(queue) - own);
};

export const lacking = (queue) => {
  const own = nominal(queue);
  return own === null ? 0 : Math.max(0, own - used(queue));
};

export const budget = (queue) => {
  const whole_ms = queue.quota?.budget_gpu_ms ?? null;
  return whole_ms === null ? null : { whole_ms, spent_ms: queue.budget_spent_gpu_ms };
};

// Each below the queue it lies in, whatever signs are in the names.
export const inTreeOrder = (queues) => {
  const parts = new Map(queues.map((queue) => [queue, queue.name.split("/")]));
  return [...queues].sort((one, other) => {
    const [a, b] = [parts.get(one), parts.get(other)];
    const at = a.findIndex((part, place) => part !== b[place]);
    if (at < 0) return a.length - b.length;
    return b[at] === undefined || a[at] > b[at] ? 1 : -1;
  });
};

export const isLeaf = (queue, queues) => !queues.some((other) => other.name.startsWith(`${queue.name}/`));
