// The second page: run any model on random inputs.

import { chosenProviders, frame } from './demo.mjs';
import { $, Python, acceptFiles, bytes, element, milliseconds, providerName, say, settle, showError, showNodes,
  showProgress } from './ui.mjs';

frame();
const python = new Python('any_model', showProgress);

/** What automation looks at: null while working, then {inputs} after loading, {outputs, …} after a run, or {error}. */
window.onnxletResult = null;

let current = null;

python.call('hello').then(() => settle('Ready. Drop a model.'), showError);

async function load(file) {
  window.onnxletResult = null;
  for (const id of ['#model', '#outputs', '#nodes']) $(id).hidden = true;
  try {
    say(`Reading ${file.name}, ${bytes(file.size)} …`);
    const described = await python.call('load', new Uint8Array(await file.arrayBuffer()), chosenProviders());
    current = file;
    $('#model-name').textContent = file.name;
    $('#model-facts').textContent = described.facts;
    $('#inputs').replaceChildren(...described.inputs.map(field));
    $('#model').hidden = false;
    settle(`${file.name} is loaded, on ${providerName(described.providers[0])}. Choose shapes and run it.`);
    window.onnxletResult = described;
  } catch (error) {
    fail(error);
  }
}

/** A text field for the shape of an input. */
function field({ name, type, shape, suggestion }) {
  const declared = `${type}, declared as [${shape.map((d) => d ?? '?').join(', ')}]`;
  return element('label', {},
    element('span', { textContent: name }),
    element('input', { name, value: suggestion.join(', '), inputMode: 'numeric', autocomplete: 'off',
      pattern: '\\s*(\\d+\\s*(,\\s*\\d+\\s*)*)?', title: 'sizes, separated by commas' }),
    element('small', { textContent: declared }));
}

async function run(event) {
  event.preventDefault();
  window.onnxletResult = null;
  $('#run').disabled = true;
  try {
    say('Running …');
    const shapes = Object.fromEntries([...new FormData($('#form'))].map(([name, text]) =>
      [name, text.split(',').map((part) => part.trim()).filter(Boolean).map(Number)]));
    const answer = await python.call('run', JSON.stringify(shapes));
    $('#time').textContent = `First run ${milliseconds(answer.first)}, then ${milliseconds(answer.warm)}.`;
    $('#outputs-body').replaceChildren(...answer.outputs.map(({ name, type, summary, values }) => element('div', {},
      element('p', { textContent: `${name}: ${type}${summary ? `, ${summary}` : ''}` }),
      element('pre', { tabIndex: 0, textContent: values }))));
    $('#outputs').hidden = false;
    showNodes(answer.explain);
    settle(`${current.name} ran.`);
    window.onnxletResult = answer;
  } catch (error) {
    fail(error);
  } finally {
    $('#run').disabled = false;
  }
}

function fail(error) {
  showError(error);
  window.onnxletResult = { error: error.message, name: error.name };
}

for (const choice of document.querySelectorAll('input[name=provider]')) {
  choice.addEventListener('change', () => current && load(current));
}
$('#form').addEventListener('submit', run);
acceptFiles(load);
