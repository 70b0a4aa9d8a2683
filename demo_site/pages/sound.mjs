// Sound for the demo's pages: recordings from files, a microphone, and sounds that are made up here.

/** The samples of a recording, mono at `rate` per second, as a Float32Array. Throws for what the browser can't play. */
export async function decode(file, rate) {
  const context = new OfflineAudioContext(1, 1, rate);
  const recording = await context.decodeAudioData(await file.arrayBuffer()).catch(() => {
    throw new Error(`${file.name} is not a recording that this browser can play.`);
  });
  const mono = new Float32Array(recording.length);
  for (let channel = 0; channel < recording.numberOfChannels; channel++) {
    const samples = recording.getChannelData(channel);
    for (let i = 0; i < mono.length; i++) mono[i] += samples[i] / recording.numberOfChannels;
  }
  return mono;
}

/** Hand over what a microphone hears, `size` samples at a time, mono at `rate` per second; returns how to stop it. */
export async function listen(rate, size, take) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, noiseSuppression: false } });
  const context = new AudioContext({ sampleRate: rate });
  await context.audioWorklet.addModule(new URL('microphone.mjs', import.meta.url));
  const source = context.createMediaStreamSource(stream);
  const worklet = new AudioWorkletNode(context, 'microphone', { numberOfOutputs: 0, processorOptions: { size } });
  worklet.port.onmessage = ({ data }) => take(data);
  source.connect(worklet);
  return () => {
    for (const track of stream.getTracks()) track.stop();
    return context.close();
  };
}

const VOWELS = [[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480], [570, 840, 2410]];
const WIDTHS = [80, 100, 150];

/**
 * A voice that sings vowels: pulses of a larynx through three resonances, which are where Peterson and Barney ("Control
 * Methods Used in a Study of the Vowels", 1952) measured them. A second of near silence is before and after it.
 */
export function madeUpVoice(rate, seconds = 3) {
  const length = Math.round(seconds * rate);
  const voice = new Float32Array(length);
  let phase = 0;
  let before = 0;
  const memory = WIDTHS.map(() => [0, 0]);
  const formants = [...VOWELS[0]];
  for (let i = 0; i < length; i++) {
    const t = i / rate;
    phase = (phase + (120 + 15 * Math.sin(6 * Math.PI * t) + 10 * Math.sin(1.4 * Math.PI * t)) / rate) % 1;
    const open = phase < 0.6 ? Math.sin(Math.PI * phase / 0.6) ** 2 : 0;
    let value = open - before;
    before = open;
    const vowel = VOWELS[Math.floor(t / 0.18) % VOWELS.length];
    for (const [j, width] of WIDTHS.entries()) {
      formants[j] += (vowel[j] - formants[j]) / (0.02 * rate); // the mouth moves within some 20 ms
      const radius = Math.exp(-Math.PI * width / rate);
      const [last, previous] = memory[j];
      value = 3 * (1 - radius) * value + 2 * radius * Math.cos(2 * Math.PI * formants[j] / rate) * last - radius ** 2 * previous;
      memory[j] = [value, last];
    }
    voice[i] = value * (0.5 + 0.5 * Math.sin(9 * Math.PI * t - Math.PI / 2)); // syllables
  }
  const loudest = voice.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
  const whole = Float32Array.from({ length: length + 2 * rate }, () => 0.002 * (Math.random() - 0.5));
  for (let i = 0; i < length; i++) whole[rate + i] += 0.5 * voice[i] / loudest;
  return whole;
}

const TUNE = [[60, 0, 0.5], [64, 0.5, 1], [67, 1, 1.5], [72, 1.5, 2.25], [60, 2.5, 3.5], [64, 2.5, 3.5], [67, 2.5, 3.5]];

/** A broken chord, then a whole one: [MIDI number, from, to] in seconds, on strings that are plucked. */
export function tune(rate, notes = TUNE) {
  const samples = new Float32Array(Math.round((Math.max(...notes.map(([, , to]) => to)) + 0.5) * rate));
  for (const [key, from, to] of notes) {
    const pitch = 440 * 2 ** ((key - 69) / 12);
    for (let i = Math.round(from * rate); i < to * rate; i++) {
      const t = i / rate - from;
      let value = 0;
      for (let k = 1; k <= 5; k++) value += Math.sin(2 * Math.PI * k * pitch * t) / k ** 3;
      samples[i] += 0.15 * value * Math.min(1, t / 0.005, (to - from - t) / 0.02) * Math.exp(-1.5 * t);
    }
  }
  return samples;
}
