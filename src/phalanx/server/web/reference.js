// Renders /api/v1/openapi.json: every route with its parameters, body, answers and an example.

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const nameOf = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.title === "JobFile") return "JobFile";
  if (schema.anyOf) return schema.anyOf.map(nameOf).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${nameOf(schema.items)}, …]`;
  return schema.type ?? "anything";
};

const table = (rows) =>
  element("table", {}, ...rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)))));

const exampleOf = (media, document) => {
  if (media.example) return media.example;
  const schema = media.schema?.$ref ? document.components.schemas[nameOf(media.schema)] : media.schema;
  return schema?.example;
};

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

const bodyOf = (operation, document) => {
  const parts = [];
  for (const [type, media] of Object.entries(operation.requestBody?.content ?? {})) {
    parts.push(element("p", {}, "Body: ", element("code", {}, type), ` ${nameOf(media.schema)}`));
    const example = exampleOf(media, document);
    if (example !== undefined) parts.push(element("pre", {}, shown(example)));
  }
  return parts;
};

const answersOf = (operation, document) => {
  const rows = Object.entries(operation.responses).map(([status, answer]) => [
    status,
    Object.values(answer.content ?? {}).map((media) => nameOf(media.schema)).join(", "),
    answer.description,
  ]);
  const parts = [element("p", {}, "Answers:"), table(rows)];
  const example = Object.entries(operation.responses)
    .filter(([status]) => status < 300)
    .flatMap(([, answer]) => Object.values(answer.content ?? {}).map((media) => exampleOf(media, document)))
    .find((value) => value !== undefined);
  if (example !== undefined) parts.push(element("pre", {}, shown(example)));
  return parts;
};

const routeOf = (path, method, operation, document) => {
  const id = `${method}-${path}`;
  const parts = [
    element("h3", { id }, element("a", { href: `#${id}` }, `${method.toUpperCase()} ${path}`)),
    element("p", {}, operation.description ?? operation.summary ?? ""),
  ];
  const parameters = operation.parameters ?? [];
  if (parameters.length) {
    parts.push(table(parameters.map((each) => [each.name, each.in, nameOf(each.schema), each.description ?? ""])));
  }
  return element("section", {}, ...parts, ...bodyOf(operation, document), ...answersOf(operation, document));
};

const schemasOf = (document) =>
  Object.entries(document.components?.schemas ?? {}).map(([name, schema]) =>
    element(
      "section",
      {},
      element("h3", { id: name }, name),
      element("p", {}, schema.description ?? ""),
      table(
        Object.entries(schema.properties ?? {}).map(([key, value]) => [key, nameOf(value), value.description ?? ""]),
      ),
    ),
  );

const render = (document) => {
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => routeOf(path, method, operation, document)),
  );
  return [
    element("h1", {}, `${document.info.title} ${document.info.version}`),
    element("p", {}, document.info.description ?? ""),
    ...routes,
    element("h2", {}, "Objects"),
    ...schemasOf(document),
  ];
};

const main = document.getElementById("reference");
const response = await fetch("/api/v1/openapi.json");
const content = await response.json();
main.replaceChildren(...(response.ok ? render(content) : [element("p", {}, content.message)]));
if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
