// What the demo's pages have in common: their frame, and a model in a worker, on the provider that is chosen there.

import { $, Python, element, providerName, settle, showError, showProgress } from './ui.mjs';

const PAGES = {
  './': 'File types',
  'text.html': 'Text in images',
  'search.html': 'Meaning',
  'notes.html': 'Notes',
  'voice.html': 'Voice',
  'model.html': 'Any model',
};

/** The pages' list, in the header; the choice of a provider, progress and status, at #run-on; where nodes ran, at #ran. */
export function frame() {
  const here = location.pathname.split('/').at(-1) || './';
  $('header').replaceChildren(element('strong', { textContent: 'onnxlet' }),
    element('nav', { ariaLabel: 'Demos' }, ...Object.entries(PAGES).map(([address, title]) => {
      const link = element('a', { href: address, textContent: title });
      if (address === here || (address === './' && here === 'index.html')) link.setAttribute('aria-current', 'page');
      return link;
    })));
  const choice = (value, title, checked) => element('label', {},
    element('input', { type: 'radio', name: 'provider', value, checked }), ` ${title}`);
  $('#run-on').replaceWith(
    element('fieldset', { className: 'providers' }, element('legend', { textContent: 'Run on' }),
      choice('cpu', 'CPU (WebAssembly)', true), choice('webgpu', 'GPU (WebGPU)', false)),
    element('progress', { id: 'progress', ariaLabel: 'Loading' }),
    // `status` and `aria-live` make screen readers say what happens.
    Object.assign(element('p', { id: 'status', role: 'status', textContent: 'Starting …' }), { ariaLive: 'polite' }));
  const titles = ['Node', 'Operator', 'Ran on', 'Result', 'Why not elsewhere'];
  $('#ran').replaceWith(element('details', { id: 'nodes', hidden: true },
    element('summary', { id: 'nodes-summary' }), element('div', { id: 'nodes-notes' }),
    element('div', { className: 'scroll', tabIndex: 0, role: 'region', ariaLabel: 'Nodes' },
      element('table', {},
        element('thead', {}, element('tr', {}, ...titles.map((title) => element('th', { textContent: title })))),
        element('tbody', { id: 'nodes-body' })))));
}

/** The providers that are chosen on the page, the preferred one first. */
export const chosenProviders = () => ($('input[name=provider]:checked').value === 'webgpu' ? ['webgpu', 'cpu'] : ['cpu']);

/**
 * A pretrained model of the site with the Python around it: the last of `modules` has `load(address, providers, progress)`, which
 * returns {providers}, and functions that `call` calls. It is loaded anew when another provider is chosen; then
 * `changed` is called. `ready` is what the page says when it is loaded.
 */
export class Demo {
  constructor(modules, model, ready, changed = () => {}) {
    frame();
    this.python = new Python(modules, showProgress);
    this.ready = ready;
    // Not awaited: what comes while this loads must find the page listening.
    this.address = fetch('site.json').then((answer) => answer.json()).then(({ models }) => {
      $('footer p').append(` Model: ${models[model].about} (${models[model].licence}).`);
      return new URL(models[model].path, location.href).href;
    });
    this.loaded = this.#load();
    for (const choice of document.querySelectorAll('input[name=provider]')) {
      choice.addEventListener('change', async () => {
        const before = this.loaded;
        this.loaded = before.catch(() => {}).then(() => this.#load());
        await this.loaded.then(changed, () => {});
      });
    }
    this.loaded.catch(() => {}); // shown already; a call that comes later is told too
  }

  async #load() {
    try {
      showProgress({ stage: 'session', done: 0, total: null });
      const { providers: [used] } = await this.python.call('load', await this.address, chosenProviders());
      settle(`Ready, on ${providerName(used)}. ${this.ready}`);
      return used;
    } catch (error) {
      showError(error);
      throw error;
    }
  }

  /** Call a function of the last module once the model is there. */
  async call(method, ...args) {
    await this.loaded;
    return this.python.call(method, ...args);
  }
}

/** Make the latest of overlapping calls of `work` the one that shows: `show` is called with its result only, and
 * `window.onnxletResult`, which automation looks at, is null meanwhile, then the result, or {error}. */
export function latest(work, show) {
  let newest = 0;
  window.onnxletResult = null;
  return async (...args) => {
    const number = ++newest;
    window.onnxletResult = null;
    try {
      const result = await work(...args);
      if (number !== newest) return;
      show(result, ...args);
      window.onnxletResult = result;
    } catch (error) {
      if (number !== newest) return;
      showError(error);
      window.onnxletResult = { error: error.message, name: error.name };
    }
  };
}
