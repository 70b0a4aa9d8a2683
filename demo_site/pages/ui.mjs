// What the demo's pages share: the worker that runs Python, progress, file choice, and the table of nodes.

export const $ = (selector) => document.querySelector(selector);

const STAGES = {
  pyodide: 'Loading Python, NumPy and onnxlet',
  ready: 'Python is ready',
  download: 'Downloading the model',
  cache: 'Reading the model from the cache',
  session: 'Preparing the model',
  reading: 'Reading lines',
  listening: 'Listening, seconds',
};

/** Calls functions of the last of some Python modules (their names, with commas between), in a worker. */
export class Python {
  constructor(modules, onProgress) {
    this.calls = new Map();
    this.next = 1;
    this.worker = new Worker(`./worker.mjs?modules=${modules}`, { type: 'module' });
    this.worker.onmessage = ({ data }) => {
      if (data.progress) return onProgress(data.progress);
      if (data.fatal) return this.fail(data.fatal);
      const call = this.calls.get(data.id);
      this.calls.delete(data.id);
      if (!call) return; // it was told already that Python is not there
      if (data.error) call.reject(Object.assign(new Error(data.error.message), { name: data.error.name }));
      else call.resolve(data.result);
    };
    this.worker.onerror = (event) => this.fail(event.message || 'the worker could not be loaded');
  }

  call(method, ...args) {
    if (this.dead) return Promise.reject(new Error(this.dead));
    return new Promise((resolve, reject) => {
      const id = this.next++;
      this.calls.set(id, { resolve, reject });
      this.worker.postMessage({ id, method, args });
    });
  }

  fail(reason) {
    this.dead = `Python could not be started: ${reason}. Reload the page to try again.`;
    for (const call of this.calls.values()) call.reject(new Error(this.dead));
    this.calls.clear();
    showError(new Error(this.dead));
  }
}

/** Show what is being loaded, in the page's status line and progress bar. */
export function showProgress({ stage, done, total }) {
  const text = STAGES[stage] ?? stage;
  const unit = ['reading', 'listening'].includes(stage) ? String : bytes;
  const amount = done ? ` (${unit(done)}${total ? ` of ${unit(total)}` : ''})` : '';
  say(stage === 'ready' ? text : `${text}${amount} …`);
  const bar = $('#progress');
  bar.hidden = false;
  if (total) {
    bar.max = total;
    bar.value = done;
  } else {
    bar.removeAttribute('value');
  }
}

/** Put a sentence into the status line and take the progress bar away. */
export function settle(text) {
  say(text);
  $('#progress').hidden = true;
}

export function say(text) {
  $('#status').textContent = text;
  $('#status').classList.remove('error');
}

export function showError(error) {
  settle(`${error.name && error.name !== 'Error' ? `${error.name}: ` : ''}${error.message}`);
  $('#status').classList.add('error');
}

/** Let files be chosen, dropped anywhere on the page, or pasted; `use` gets one File at a time. */
export function acceptFiles(use) {
  const input = $('#file');
  input.addEventListener('change', () => {
    const [file] = input.files;
    if (file) use(file);
    input.value = ''; // so that the same file can be chosen again
  });
  const zone = $('#drop');
  addEventListener('dragover', (event) => {
    event.preventDefault();
    zone.classList.add('over');
  });
  addEventListener('dragleave', (event) => {
    if (!event.relatedTarget) zone.classList.remove('over');
  });
  addEventListener('drop', (event) => {
    event.preventDefault();
    zone.classList.remove('over');
    const [file] = event.dataTransfer.files;
    if (file) use(file);
  });
  addEventListener('paste', (event) => {
    const [file] = event.clipboardData.files;
    if (file) use(file);
  });
}

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function bytes(n) {
  if (n < 1000) return `${n} bytes`;
  return n < 1e6 ? `${(n / 1e3).toFixed(0)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}

export function milliseconds(n) {
  return n < 10 ? `${n.toFixed(1)} ms` : n < 1000 ? `${n.toFixed(0)} ms` : `${(n / 1000).toFixed(2)} s`;
}

const PROVIDERS = {
  CPUExecutionProvider: 'CPU kernels',
  WebGpuExecutionProvider: 'WebGPU',
  NumPy: 'NumPy',
  plan: 'computed ahead',
};

/** The short name of a provider, for people. */
export const providerName = (name) => PROVIDERS[name] ?? name;

/** Fill the section #nodes with what `explain()` says. */
export function showNodes({ counts, absent, nodes }) {
  const parts = Object.entries(counts).map(([name, n]) => `${n} ${name === 'plan' ? '' : 'on '}${providerName(name)}`);
  $('#nodes-summary').textContent = `Where each node ran: ${parts.join(', ')}`;
  $('#nodes-notes').replaceChildren(
    ...Object.entries(absent).map(([name, reason]) =>
      element('p', { textContent: `${providerName(name)} is not used: ${reason}` })),
  );
  $('#nodes-body').replaceChildren(...nodes.map((row) => element('tr', {},
    element('td', { textContent: row.node }),
    element('td', { textContent: row.operator }),
    element('td', { textContent: providerName(row.provider) }),
    element('td', { textContent: row.outputs }),
    element('td', { textContent: row.reason }))));
  $('#nodes').hidden = false;
}
