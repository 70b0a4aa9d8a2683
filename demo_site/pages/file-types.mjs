// The main page: what type is this file?

import { $, Python, acceptFiles, bytes, element, milliseconds, providerName, say, settle, showError, showNodes,
  showProgress } from './ui.mjs';

const CHUNK = 4096; // bytes that are looked at, at each end of a file

// Not awaited here: a file that is chosen while this loads must find the page listening.
const model = fetch('site.json').then((answer) => answer.json()).then((site) => new URL(site.models.magika.path, location.href).href);
const python = new Python('file_types', showProgress);

/** What automation looks at: null while a file is being looked at, then the answer or {error}. */
window.onnxletResult = null;

let loaded = load();
loaded.catch(() => {}); // shown already; a file that comes later is told too

async function load() {
  const providers = $('input[name=provider]:checked').value === 'webgpu' ? ['webgpu', 'cpu'] : ['cpu'];
  try {
    showProgress({ stage: 'session', done: 0, total: null });
    const { providers: used } = await python.call('load', await model, providers);
    settle(`Ready, on ${providerName(used[0])}. Drop a file.`);
    return used[0];
  } catch (error) {
    showError(error);
    throw error;
  }
}

for (const choice of document.querySelectorAll('input[name=provider]')) {
  choice.addEventListener('change', async () => {
    const seen = latest;
    loaded = loaded.catch(() => {}).then(load);
    await loaded.catch(() => {});
    if (seen && seen === latest) look(latest); // one that came meanwhile waited for this and is looked at already
  });
}

let latest = null;

async function look(file) {
  latest = file;
  window.onnxletResult = null;
  try {
    const provider = await loaded;
    say(`Looking at ${file.name} …`);
    const [head, tail] = await Promise.all([file.slice(0, CHUNK).arrayBuffer(), file.slice(-CHUNK).arrayBuffer()]);
    const answer = await python.call('detect', new Uint8Array(head), new Uint8Array(tail));
    if (file !== latest) return; // another file came meanwhile
    show(file, answer);
    settle(`${file.name}: ${answer.description}.`);
    window.onnxletResult = { label: answer.label, probability: answer.probability, milliseconds: answer.milliseconds,
      provider, nodes: answer.explain.nodes };
  } catch (error) {
    showError(error);
    window.onnxletResult = { error: error.message };
  }
}

function show(file, answer) {
  $('#answer-name').textContent = `${file.name}, ${bytes(file.size)}`;
  $('#answer-type').textContent = answer.description;
  $('#guesses').replaceChildren(...answer.guesses.map(({ description, probability }) => element('li', {},
    element('span', { textContent: description }),
    element('meter', { value: probability, ariaLabel: description }),
    element('span', { className: 'number', textContent: `${(100 * probability).toFixed(1)} %` }))));
  $('#time').textContent = `The model took ${milliseconds(answer.milliseconds)}.`;
  $('#answer').hidden = false;
  showNodes(answer.explain);
}

acceptFiles(look);

const SAMPLES = {
  python: ['hello.py', 'import sys\n\n\ndef main() -> int:\n    print("hello", sys.argv)\n    return 0\n\n\nif __name__ == "__main__":\n    sys.exit(main())\n'],
  json: ['package.json', JSON.stringify({ name: 'sample', version: '1.0.0', keywords: ['a', 'b'], nested: { on: true } }, null, 2)],
};
for (const button of document.querySelectorAll('button[data-sample]')) {
  button.addEventListener('click', () => {
    const [name, text] = SAMPLES[button.dataset.sample];
    look(new File([text], name));
  });
}
