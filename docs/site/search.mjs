// Ask the search of the built site as its pages do: node search.mjs HTML QUERY..., one JSON line each.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { runInNewContext } from "node:vm";

const [html, ...queries] = process.argv.slice(2);
const workers = join(html, "assets/javascripts/workers");
const script = readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(readFileSync(join(html, "search.json"), "utf8"));
const answers = [];
let told = () => {};
const self = { postMessage: (message) => told(message) };
runInNewContext(readFileSync(join(workers, script), "utf8"), { self, Intl, Map, Set, console });

function ask(type, data) {
  return new Promise((resolve, reject) => {
    told = (message) => (message.type === 4 ? reject(new Error("the search failed")) : resolve(message));
    self.onmessage({ data: { type, data } });
  });
}

await ask(0, index);
for (const input of queries) {
  const { data } = await ask(2, { input, filter: { input: { type: "operator", data: { operator: "and", operands: [] } }, aggregation: { input: [] } } });
  const found = data.items.map((item) => index.items[item.id]);
  console.log(JSON.stringify({ query: input, pages: found.map((item) => item.location) }));
}
