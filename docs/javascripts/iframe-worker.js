// Browsers start no workers for pages of a folder (file://), and the site's search runs in one. Here the worker's script
// runs in a hidden frame instead. The theme asks for the name IFrameWorker, and for messages both ways, and no more.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    window.addEventListener("message", (event) => {
      if (event.source === inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    inside.document.open();
    inside.document.write("<!doctype html><body></body>");
    inside.document.close();
    // The frame asks its parent, so that the event's source is the frame.
    inside.eval("postMessage = (data) => parent.postMessage(data, '*')");
    inside.importScripts = async (...sources) => {
      for (const source of sources) await loaded(inside.document, source);
    };
    this.ready = loaded(inside.document, String(url));
  }

  postMessage(data) {
    this.ready.then(() => {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    });
  }

  terminate() {
    this.frame.remove();
  }
}

function loaded(page, source) {
  return new Promise((done, failed) => {
    const script = page.createElement("script");
    script.src = source;
    script.onload = done;
    script.onerror = failed;
    page.body.append(script);
  });
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
