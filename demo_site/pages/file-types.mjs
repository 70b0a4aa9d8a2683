// The main page: what type is this file?

import { Demo, latest } from './demo.mjs';
import { $, acceptFiles, bytes, element, milliseconds, say, settle, showNodes } from './ui.mjs';

const CHUNK = 4096; // bytes that are looked at, at each end of a file

let seen = null;
const demo = new Demo('file_types', 'magika', 'Drop a file.', () => seen && look(seen));
const look = latest(detect, show);
acceptFiles(look);

async function detect(file) {
  seen = file;
  const provider = await demo.loaded;
  say(`Looking at ${file.name} …`);
  const [head, tail] = await Promise.all([file.slice(0, CHUNK).arrayBuffer(), file.slice(-CHUNK).arrayBuffer()]);
  const answer = await demo.call('detect', new Uint8Array(head), new Uint8Array(tail));
  return { ...answer, provider, nodes: answer.explain.nodes };
}

function show(answer, file) {
  $('#answer-name').textContent = `${file.name}, ${bytes(file.size)}`;
  $('#answer-type').textContent = answer.description;
  $('#guesses').replaceChildren(...answer.guesses.map(({ description, probability }) => element('li', {},
    element('span', { textContent: description }),
    element('meter', { value: probability, ariaLabel: description }),
    element('span', { className: 'number', textContent: `${(100 * probability).toFixed(1)} %` }))));
  $('#time').textContent = `The model took ${milliseconds(answer.milliseconds)}.`;
  $('#answer').hidden = false;
  showNodes(answer.explain);
  settle(`${file.name}: ${answer.description}.`);
}

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
