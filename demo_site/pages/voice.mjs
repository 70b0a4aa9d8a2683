// Where somebody speaks: in a recording, or into the microphone, live.

import { Demo, latest } from './demo.mjs';
import { decode, listen, madeUpVoice } from './sound.mjs';
import { $, acceptFiles, element, milliseconds, say, settle, showError, showNodes } from './ui.mjs';

const RATE = 16000;
const CHUNK = 512;
const PIECE = 4 * CHUNK; // samples of a microphone that are looked at together
const SHOWN = 80 * PIECE; // samples of a microphone that the plot shows

let seen = null;
const demo = new Demo('voice', 'voice', 'Drop a recording.', () => seen && !stop && look(seen));
const look = latest(find, show);
acceptFiles((file) => stopMicrophone().then(() => look(file)));

const asBytes = (samples) => new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);

async function find(source) {
  seen = source;
  await demo.loaded;
  say(`Listening to ${source.name} …`);
  const samples = source.samples ?? await decode(source, RATE);
  return { ...await demo.call('listen', asBytes(samples)), samples };
}

function show({ probabilities, speech, seconds, milliseconds: spent, samples, explain }, { name }) {
  const spoken = speech.reduce((sum, [from, to]) => sum + to - from, 0);
  $('#answer-title').textContent = speech.length ? `${spoken.toFixed(1)} of ${seconds.toFixed(1)} seconds are speech`
    : 'Nobody speaks';
  $('#stretches').replaceChildren(...speech.map(([from, to]) =>
    element('li', { textContent: `from ${from.toFixed(2)} s to ${to.toFixed(2)} s` })));
  $('#time').textContent = `${seconds.toFixed(1)} seconds were looked at in ${milliseconds(spent)}.`;
  $('#answer').hidden = false;
  plot(samples, probabilities);
  showNodes(explain);
  settle(`${name}: ${$('#answer-title').textContent}.`);
}

/** Draw the loudest samples at each place, and the probabilities below. */
function plot(samples, probabilities) {
  const canvas = $('#plot');
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name);
  const context = canvas.getContext('2d');
  const { width, height } = canvas;
  const middle = height / 3;
  context.clearRect(0, 0, width, height);
  context.fillStyle = color('--soft');
  for (let x = 0; x < width; x++) {
    const part = samples.subarray(Math.floor(x * samples.length / width), Math.floor((x + 1) * samples.length / width) + 1);
    let loudest = 0;
    for (const sample of part) loudest = Math.max(loudest, Math.abs(sample));
    const size = Math.max(1, Math.min(1, loudest) * 2 * middle * 0.95);
    context.fillRect(x, middle - size / 2, 1, size);
  }
  const bar = width / Math.max(1, probabilities.length);
  const base = height - 4;
  for (const [i, probability] of probabilities.entries()) {
    context.fillStyle = color(probability >= 0.5 ? '--accent' : '--line');
    const size = Math.max(2, probability * (height / 3 - 10));
    context.fillRect(i * bar, base - size, Math.max(1, bar), size);
  }
  canvas.setAttribute('aria-label', $('#answer-title').textContent);
}

// The microphone, live

let stop = null;

async function stopMicrophone() {
  const ended = stop;
  stop = null;
  $('#microphone').setAttribute('aria-pressed', 'false');
  $('#microphone').textContent = 'use the microphone';
  await ended?.();
}

async function startMicrophone() {
  window.onnxletResult = null;
  await demo.loaded;
  const heard = new Float32Array(SHOWN);
  let likely = [];
  let fresh = true;
  let pending = Promise.resolve();
  const take = (piece) => {
    pending = pending.then(async () => {
      if (!stop) return;
      const found = await demo.call('hear', asBytes(piece), fresh);
      fresh = false;
      heard.copyWithin(0, piece.length);
      heard.set(piece, heard.length - piece.length);
      likely = [...likely, ...found].slice(-SHOWN / CHUNK);
      const now = found.at(-1) >= 0.5;
      $('#answer-title').textContent = now ? 'Somebody speaks' : 'Nobody speaks';
      $('#stretches').replaceChildren();
      $('#time').textContent = `The last ${(SHOWN / RATE).toFixed(0)} seconds.`;
      $('#answer').hidden = false;
      plot(heard, [...new Array(SHOWN / CHUNK - likely.length).fill(0), ...likely]);
      window.onnxletResult = { probabilities: likely };
    }).catch(showError);
  };
  stop = await listen(RATE, PIECE, take);
  $('#microphone').setAttribute('aria-pressed', 'true');
  $('#microphone').textContent = 'stop the microphone';
  settle('Listening. Speak.');
}

$('#microphone').addEventListener('click', () => (stop ? stopMicrophone() : startMicrophone()).catch(showError));
$('#sample').addEventListener('click', () => stopMicrophone().then(() =>
  look({ name: 'a made-up voice', samples: madeUpVoice(RATE) })));
