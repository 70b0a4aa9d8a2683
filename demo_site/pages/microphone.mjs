// Gathers what a microphone hears into pieces of one size, on the sound's own thread.

class Microphone extends AudioWorkletProcessor {
  constructor({ processorOptions: { size } }) {
    super();
    this.size = size;
    this.piece = new Float32Array(size);
    this.filled = 0;
  }

  process([[samples]]) {
    for (const sample of samples ?? []) {
      this.piece[this.filled++] = sample;
      if (this.filled < this.size) continue;
      this.port.postMessage(this.piece, [this.piece.buffer]);
      this.piece = new Float32Array(this.size);
      this.filled = 0;
    }
    return true;
  }
}

registerProcessor('microphone', Microphone);
