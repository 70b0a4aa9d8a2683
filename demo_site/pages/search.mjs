// Search by meaning: sentences of a pasted text, the nearest to a question first.

import { Demo, latest } from './demo.mjs';
import { $, element, milliseconds, settle, say, showNodes } from './ui.mjs';

const SAMPLE = `We arrived late in the evening because the locomotive broke down twice between the lakes.
The inn had one room left, small and clean, with a view of the harbour.
For breakfast there was dark bread, cheese, and a soup of beans that had cooked all night.
My brother repaired the bicycle with a piece of wire and a great deal of patience.
The library opens at nine, but the reading room under the roof is closed until spring.
Nobody in the village remembers who planted the chestnut trees along the river.
A doctor came by boat on Thursdays to look after the old people on the island.
The children built a telescope from cardboard and saw four moons of Jupiter.
Prices have doubled since last summer, so most visitors stay only for the day.
At noon the bell rings, the shops close, and the cats take over the square.`;

const demo = new Demo('wordpiece,search', 'minilm', 'Ask something.', () => search());
const search = latest(find, show);

async function find() {
  const [text, query] = [$('#text').value, $('#query').value.trim()];
  if (!query || !text.trim()) return { found: [] };
  await demo.loaded;
  say('Reading …');
  return demo.call('search', text, query);
}

function show({ found, milliseconds: spent, sentences, explain }) {
  $('#answer').hidden = !found.length;
  $('#found').replaceChildren(...found.map(({ sentence, similarity }) => element('li', {},
    element('span', { textContent: sentence }),
    element('meter', { value: Math.max(0, similarity), ariaLabel: 'similarity' }),
    element('span', { className: 'number', textContent: similarity.toFixed(2) }))));
  if (!found.length) return settle('Paste some text, and ask something.');
  $('#time').textContent = `${sentences} new sentences were read in ${milliseconds(spent)}.`;
  showNodes(explain);
  settle(`The nearest of ${found.length} shown is: ${found[0].sentence}`);
}

let waiting;
for (const id of ['#text', '#query']) {
  $(id).addEventListener('input', () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 300); // while somebody types, not after every key
  });
}
for (const button of document.querySelectorAll('button[data-query]')) {
  button.addEventListener('click', () => {
    $('#query').value = button.dataset.query;
    search();
  });
}
$('#text').value = SAMPLE;
search();
