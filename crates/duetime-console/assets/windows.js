// The windows of one browser: of those that show the same one asks and listens, and tells the others.

// Windows of other tokens are told nothing: as a browser has six connections to a node for all its windows, so many of
// them hold a stream, and those beyond ask.
const STREAMS_MAX = 3;
const HERE_FOR_MS = 6000;

export class Windows {
  // The other windows that can be seen, each with when it said so last: those that lead, whatever they show, and all
  // that show the same as this one. Numbers grow with the time at which a window came into sight.
  leaders = new Map();
  same = new Map();
  id = 0;
  all = new BroadcastChannel("duetime");
  shared = undefined;

  // `heard` takes what the one that leads told, `asked` tells it to one that is new, `begins` goes on where that one
  // ended.
  constructor(heard, asked, begins) {
    Object.assign(this, { heard, asked, begins });
    this.all.onmessage = ({ data }) => this.leaders.set(data, Date.now());
    addEventListener("pagehide", () => this.leave());
  }

  before(windows) {
    for (const [id, at] of windows) if (Date.now() - at > HERE_FOR_MS) windows.delete(id);
    return [...windows.keys()].filter((id) => id < this.id).length;
  }

  // The first of those that show the same leads.
  leads() {
    return !this.before(this.same);
  }

  mayListen() {
    return this.leads() && this.before(this.leaders) < STREAMS_MAX;
  }

  // This one can be seen, still.
  here() {
    this.shared?.postMessage({ id: this.id });
    if (this.shared && this.leads()) this.all.postMessage(this.id);
  }

  // Where no other window listens nothing is copied for it.
  tell(told) {
    if (this.leads() && this.same.size) this.shared?.postMessage({ id: this.id, told });
  }

  hear({ id, isNew, told, left }) {
    if (left) {
      this.same.delete(id);
      if (id < this.id && this.leads()) this.begins();
      return;
    }
    this.same.set(id, Date.now());
    if (isNew && this.leads()) this.asked();
    if (told && id < this.id) this.heard(told);
  }

  // Joins those that show what `name` says.
  join(name) {
    this.leave();
    this.id = Date.now() + Math.random();
    this.same.clear();
    this.shared = new BroadcastChannel(`duetime ${name}`);
    this.shared.onmessage = ({ data }) => this.hear(data);
    this.shared.postMessage({ id: this.id, isNew: true });
  }

  leave() {
    this.shared?.postMessage({ id: this.id, left: true });
    this.shared?.close();
    this.shared = undefined;
  }
}
