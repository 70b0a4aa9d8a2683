// Reads the text in an image, and draws a box around every line.

import { Demo, latest } from './demo.mjs';
import { $, acceptFiles, element, milliseconds, say, settle, showNodes } from './ui.mjs';

const LARGEST = 4096; // pixels of a side; larger images are scaled down

let seen = null;
const demo = new Demo('boxes,reading', 'ocr', 'Drop an image.', () => seen && read(seen));
const read = latest(find, show);
acceptFiles(read);

async function find(file) {
  seen = file;
  await demo.loaded;
  say(`Reading ${file.name} …`);
  const picture = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is not an image that this browser can show.`);
  });
  const scale = Math.min(1, LARGEST / Math.max(picture.width, picture.height));
  const canvas = $('#image');
  canvas.width = Math.max(1, Math.round(picture.width * scale));
  canvas.height = Math.max(1, Math.round(picture.height * scale));
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  $('#boxes').replaceChildren();
  const answer = await demo.call('read', new Uint8Array(data.buffer), canvas.width, canvas.height);
  return { ...answer, width: canvas.width, height: canvas.height };
}

function show({ lines, milliseconds: spent, width, height, explain }, file) {
  const boxes = $('#boxes');
  boxes.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const around = (index, box) => {
    const shape = document.createElementNS('http://www.w3.org/2000/svg', 'polygon');
    shape.setAttribute('points', box.map((corner) => corner.join(',')).join(' '));
    shape.dataset.line = index;
    return shape;
  };
  boxes.replaceChildren(...lines.map(({ box }, i) => around(i, box)));
  $('#lines').replaceChildren(...lines.map(({ text, probability }, i) => {
    const line = element('li', { title: `${(100 * probability).toFixed(0)} % sure` }, text);
    const mark = (on) => boxes.querySelector(`[data-line="${i}"]`)?.classList.toggle('marked', on);
    line.addEventListener('pointerenter', () => mark(true));
    line.addEventListener('pointerleave', () => mark(false));
    return line;
  }));
  $('#time').textContent = `Finding lines took ${milliseconds(spent.find)}, reading them ${milliseconds(spent.read)}.`;
  $('#image').setAttribute('aria-label', `${file.name}, with ${lines.length} lines of text`);
  $('#copy').hidden = !lines.length;
  $('#answer').hidden = false;
  showNodes(explain);
  settle(lines.length ? `${file.name}: ${lines.length} lines of text.` : `${file.name}: no text was found.`);
}

$('#copy').addEventListener('click', async () => {
  const text = [...$('#lines').children].map((line) => line.textContent).join('\n');
  try {
    await navigator.clipboard.writeText(text);
    say('The text is in the clipboard.');
  } catch {
    say('This browser did not allow copying: select the lines instead.');
  }
});

$('#sample').addEventListener('click', () => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 720, height: 520 });
  const context = canvas.getContext('2d');
  context.fillStyle = '#f4f1e8';
  context.fillRect(0, 0, 720, 520);
  context.fillStyle = '#222';
  context.rotate(0.03);
  const lines = ['HARBOUR BAKERY', '12 Quay Street', 'Rye bread 4.20', 'Apple cake 3.80', 'Coffee 2.50', 'TOTAL 10.50', 'Thank you!'];
  lines.forEach((line, i) => {
    context.font = `${i === 0 || i === 5 ? 'bold 40px' : '30px'} sans-serif`;
    context.fillText(line, 90, 90 + 62 * i);
  });
  canvas.toBlob((blob) => read(new File([blob], 'receipt.png', { type: 'image/png' })));
});
