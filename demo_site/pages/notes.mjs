// The notes in a recording, as a piano roll.

import { Demo, latest } from './demo.mjs';
import { decode, tune } from './sound.mjs';
import { $, acceptFiles, element, milliseconds, say, settle, showNodes } from './ui.mjs';

const RATE = 22050;
const NAMES = ['C', 'C♯', 'D', 'D♯', 'E', 'F', 'F♯', 'G', 'G♯', 'A', 'A♯', 'B'];

let seen = null;
let notes = [];
const demo = new Demo('notes', 'notes', 'Drop a recording.', () => seen && look(seen));
const look = latest(find, show);
acceptFiles(look);

/** The name of a key by its MIDI number: 60 is C4. */
const keyName = (key) => `${NAMES[key % 12]}${Math.floor(key / 12) - 1}`;

async function find(source) {
  seen = source;
  await demo.loaded;
  say(`Listening to ${source.name} …`);
  const samples = source.samples ?? await decode(source, RATE);
  return demo.call('transcribe', new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength));
}

function show(answer, { name }) {
  notes = answer.notes;
  $('#answer-title').textContent = `${notes.length} notes in ${answer.seconds.toFixed(1)} seconds`;
  $('#time').textContent = `Listening took ${milliseconds(answer.milliseconds)}.`;
  $('#list').replaceChildren(...notes.map(({ key, from, to }) =>
    element('li', { textContent: `${keyName(key)} from ${from.toFixed(2)} s to ${to.toFixed(2)} s` })));
  URL.revokeObjectURL($('#midi').href);
  $('#midi').href = URL.createObjectURL(new Blob([midi(notes)], { type: 'audio/midi' }));
  $('#play').disabled = !notes.length;
  $('#answer').hidden = false;
  draw(answer.seconds);
  showNodes(answer.explain);
  settle(`${name}: ${$('#answer-title').textContent}.`);
}

/** A piano roll: time to the right, keys upwards, black ones shaded, stronger notes fuller. */
function draw(seconds) {
  const canvas = $('#roll');
  const context = canvas.getContext('2d');
  const style = getComputedStyle(document.documentElement);
  const ratio = devicePixelRatio;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = Math.round(canvas.width * 0.45);
  const { width, height } = canvas;
  const keys = notes.map(({ key }) => key);
  const low = Math.min(60, ...keys) - 2;
  const high = Math.max(72, ...keys) + 2;
  const row = height / (high - low + 1);
  const left = 32 * ratio;
  const scale = (width - left) / Math.max(seconds, 0.1);
  context.clearRect(0, 0, width, height);
  context.font = `${12 * ratio}px system-ui, sans-serif`;
  for (let key = low; key <= high; key++) {
    const y = (high - key) * row;
    context.fillStyle = style.getPropertyValue('--line');
    context.globalAlpha = [1, 3, 6, 8, 10].includes(key % 12) ? 0.45 : 0.1;
    context.fillRect(left, y, width, row - 1);
    context.globalAlpha = 1;
    context.fillStyle = style.getPropertyValue('--soft');
    if (key % 12 === 0) context.fillText(keyName(key), 4 * ratio, y + row);
  }
  context.fillStyle = style.getPropertyValue('--accent');
  for (const { key, from, to, strength } of notes) {
    context.globalAlpha = 0.35 + 0.65 * Math.min(1, strength);
    context.beginPath();
    context.roundRect(left + from * scale, (high - key) * row, Math.max(2, (to - from) * scale - 2), row - 1, 4);
    context.fill();
  }
  context.globalAlpha = 1;
  canvas.setAttribute('aria-label', `Piano roll: ${$('#answer-title').textContent}`);
}

/** A MIDI file of format 0 with these notes (Standard MIDI Files 1.0): 480 ticks for half a second. */
function midi(found) {
  const events = found.flatMap(({ key, from, to, strength }) => [
    { tick: Math.round(from * 960), bytes: [0x90, key, Math.max(1, Math.min(127, Math.round(strength * 127)))] },
    { tick: Math.round(to * 960), bytes: [0x80, key, 0] },
  ]).sort((a, b) => a.tick - b.tick || a.bytes[0] - b.bytes[0]);
  const track = [];
  let now = 0;
  for (const { tick, bytes } of events) {
    const delta = [];
    for (let left = tick - now; ; left >>= 7) {
      delta.unshift((left & 127) | (delta.length ? 128 : 0));
      if (left < 128) break;
    }
    track.push(...delta, ...bytes);
    now = tick;
  }
  track.push(0, 0xff, 0x2f, 0);
  const long = (n) => [n >>> 24, (n >>> 16) & 255, (n >>> 8) & 255, n & 255];
  const text = (word) => [...word].map((letter) => letter.charCodeAt(0));
  return new Uint8Array([...text('MThd'), ...long(6), 0, 0, 0, 1, 0x01, 0xe0, ...text('MTrk'), ...long(track.length), ...track]);
}

$('#play').addEventListener('click', () => {
  const context = new AudioContext();
  for (const { key, from, to, strength } of notes) {
    const tone = new OscillatorNode(context, { type: 'triangle', frequency: 440 * 2 ** ((key - 69) / 12) });
    const loudness = new GainNode(context, { gain: 0 });
    const start = context.currentTime + 0.1;
    loudness.gain.setValueAtTime(0.15 * strength, start + from);
    loudness.gain.setTargetAtTime(0, start + to, 0.03);
    tone.connect(loudness).connect(context.destination);
    tone.start(start + from);
    tone.stop(start + to + 0.2);
  }
});

$('#sample').addEventListener('click', () => look({ name: 'a little tune', samples: tune(RATE) }));
