// Python in a Web Worker, for page.html.
import { boot } from "./host.mjs";

let python;
self.onmessage = async ({ data }) => {
  try {
    if (data.options) {
      python = await boot(data.options);
      postMessage({ result: null });
    } else {
      postMessage({ result: await python.run(data.code, data.inputs) });
    }
  } catch (error) {
    postMessage({ failure: String(error?.stack ?? error) });
  }
};
