// One thread of the kernels: a worker that helps with one memory at a time. It says when it is free for the next one.
onmessage = ({ data: { module, memory, control, number, stack } }) => {
  try {
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    exports.__stack_pointer.value = stack;
    try {
      exports.help(control, number);
    } catch (error) {
      // What it was at is not done; whoever waits for it has to know.
      exports.control_break(control, 1);
      throw error;
    }
  } finally {
    postMessage("free");
  }
};
postMessage("free");
