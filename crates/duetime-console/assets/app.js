// The frame of the page: where one is, what is wrong, and the search for a message.

import { html, render, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { hasToken, hasTry, live, may, readOnly, sees, setToken } from "./api.js";
import {
  Confirm,
  Failed,
  KEPT_CLAIMS,
  Toasts,
  hasKeys,
  keepFocus,
  setKeys,
  useKeys,
  useLive,
} from "./parts.js";
import { Fleet } from "./fleet.js";
import { Spoken, troubles } from "./trouble.js";
import { ZONE, ago, clockOff, coded, command, plain, plural, seconds, time } from "./format.js";

const PLACES = [
  ["", "Now"],
  ["nodes", "Nodes"],
  ["sinks", "Sinks"],
  ["slo", "SLO"],
  ["audit", "Audit"],
  ["try", "Try it"],
];
const OF_TOPIC = [
  ["topic", "Overview"],
  ["forecast", "Forecast"],
  ["messages", "Messages"],
  ["shards", "Shards"],
  ["dead", "Dead letters"],
];
// What the operator calls this cluster.
const CLUSTER = document.documentElement.dataset.cluster;
// Screens with figures that each node has of itself.
const OF_NODES = new Set(["", "sinks", "slo", "audit", "topic", "forecast"]);
// Each screen is loaded when it is opened first.
const SCREENS = {
  "": () => import("./screens/now.js").then((screen) => screen.Now),
  nodes: () => import("./screens/nodes.js").then((screen) => screen.Nodes),
  sinks: () => import("./screens/sinks.js").then((screen) => screen.Sinks),
  slo: () => import("./screens/slo.js").then((screen) => screen.Slo),
  audit: () => import("./screens/audit.js").then((screen) => screen.Audit),
  try: () => import("./screens/try.js").then((screen) => screen.Try),
  find: () => import("./screens/find.js").then((screen) => screen.Find),
  message: () => import("./screens/message.js").then((screen) => screen.Message),
  topic: () => import("./screens/topic.js").then((screen) => screen.Topic),
  forecast: () => import("./screens/forecast.js").then((screen) => screen.Forecast),
  messages: () => import("./screens/messages.js").then((screen) => screen.Messages),
  shards: () => import("./screens/shards.js").then((screen) => screen.Shards),
  dead: () => import("./screens/dead.js").then((screen) => screen.Dead),
  palette: () => import("./screens/palette.js").then((screen) => screen.Palette),
};
const loaded = new Map();

function Screen({ name, ...props }) {
  const [problem, set] = useState();
  useEffect(() => {
    if (loaded.has(name)) return;
    SCREENS[name]().then(
      (screen) => set(void loaded.set(name, screen)),
      () => set(new Error("This screen could not be loaded. Load the page again.")),
    );
  }, [name, problem]);
  if (problem) return html`<${Failed} problem=${problem} />`;
  return loaded.has(name)
    ? html`<${loaded.get(name)} ...${props} />`
    : html`<p class="quiet">…</p>`;
}

// A part of a link as it is meant: what was cut off or typed by hand may be no code.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function where() {
  const hash = location.hash.replace(/^#\/?/, "");
  // An id that was written by hand may have a "?".
  const [path, ...query] = /^(message|find)\//.test(hash) ? [hash] : hash.split("?");
  const [place = "", ...rest] = path.split("/").map(decoded);
  return { place, rest, query: query.join("?") };
}

// Whether all that troubles are found in was looked at, and each topic read.
const isWhole = ({ topics, me, looked }) =>
  Boolean(topics && me && looked.issues && looked.rates) && topics.every((topic) => !topic.unknown);

const OTHER_TITLES = { message: "Message", find: "Find" };

function Login({ wrong }) {
  const [text, setText] = useState("");
  const isHeader = /^[\x21-\x7e]+$/.test(text);
  const use = (event) => {
    event.preventDefault();
    if (isHeader) setToken(text);
  };
  return html`
    <div class="card">
      <h1>This node asks for a token</h1>
      <p class="quiet">It is kept in this tab only, and gone when you close it.</p>
      ${wrong && html`<p class="bad">The node does not know this token.</p>`}
      <form class="row" onSubmit=${use}>
        <label>
          Token
          <input
            type="password"
            value=${text}
            onInput=${(event) => setText(event.target.value)}
            aria-invalid=${text !== "" && !isHeader}
            autocomplete="off"
            autofocus
          />
        </label>
        <button class="main" disabled=${!isHeader}>Use it</button>
        ${
          text !== "" &&
          !isHeader &&
          html`
          <p class="bad" role="alert">
            A token has letters, digits and signs of ASCII only, and no blanks.
          </p>
        `
        }
      </form>
    </div>
  `;
}

const UnknownTopic = ({ name }) =>
  html`
    <div class="card">
      <h2>There is no topic ${plain(name)}</h2>
      <p>
        It was deleted, is not made yet, or is none of those that this token is for. To make it:${" "}
        <code>${command("topic create", {}, name)}</code>
      </p>
    </div>
  `;

function Help({ onClose }) {
  const dialog = useRef();
  const [on, setOn] = useState(hasKeys());
  useEffect(() => dialog.current.showModal(), []);
  return html`
    <dialog ref=${dialog} onClose=${onClose} aria-labelledby="help-title">
      <h2 id="help-title">Keys</h2>
      <dl class="pairs">
        <dt><kbd>/</kbd></dt>
        <dd>find a message by id</dd>
        <dt><kbd>g</kbd></dt>
        <dd>back to Now</dd>
        <dt><kbd>Ctrl K</kbd></dt>
        <dd>go to a screen or a topic, or do something here, by its name</dd>
        <dt><kbd>f</kbd></dt>
        <dd>on Now: only some topics</dd>
        <dt><kbd>p</kbd></dt>
        <dd>on a topic's overview, and on a row of Sinks: pause or resume it, which is asked first</dd>
        <dt><kbd>?</kbd></dt>
        <dd>this help</dd>
        <dt><kbd>Esc</kbd></dt>
        <dd>close</dd>
      </dl>
      <p class="quiet">
        Messages are found by topic and id, or by id in all topics. Payloads are not searched.
      </p>
      <label class="check">
        <input
          type="checkbox"
          checked=${on}
          onChange=${(event) => {
            setKeys(event.target.checked);
            setOn(hasKeys());
          }}
        />These keys are on, in this browser
      </label>
      <div class="row"><button onClick=${onClose} autofocus>Close</button></div>
    </dialog>
  `;
}

function Search({ topics }) {
  const [text, setText] = useState("");
  const field = useRef();
  useKeys({
    "/": () => {
      field.current.focus();
      field.current.select();
    },
  });
  const find = (event) => {
    event.preventDefault();
    // `topic id`, or an id alone: then in the topic that is shown, or the only one there is, or in all of them.
    const at = text.indexOf(" ");
    const named = at > 0 && topics.some((topic) => topic.name === text.slice(0, at));
    const { place, rest } = where();
    const shown =
      OF_TOPIC.some(([name]) => name === place) || place === "message"
        ? rest[0]
        : topics.length === 1
          ? topics[0].name
          : undefined;
    const topic = named ? text.slice(0, at) : shown;
    // An id that begins or ends with a blank is written in quotes, as it is shown.
    const said = (named ? text.slice(at + 1) : text).trim();
    const id = /^"(\s.*|.*\s)"$/.test(said) ? said.slice(1, -1) : said;
    if (id)
      location.hash = topic ? `#/message/${coded(topic)}/${coded(id)}` : `#/find/${coded(id)}`;
  };
  return html`
    <form role="search" onSubmit=${find}>
      <input
        ref=${field}
        type="search"
        aria-label="Find a message: topic and id"
        placeholder="message id, or: topic id"
        value=${text}
        onInput=${(event) => setText(event.target.value)}
      />
      <button>Find</button>
    </form>
  `;
}

function App() {
  const state = useLive();
  const [at, setAt] = useState(where());
  const [help, setHelp] = useState(false);
  const [commands, setCommands] = useState(false);
  const [forgets, setForgets] = useState(0);
  const main = useRef();
  // In the same task as the first drawing: an effect comes later, and would miss an address that changes before it.
  useLayoutEffect(() => {
    const moved = () => {
      setAt({ ...where(), moves: performance.now() });
      scrollTo(0, 0);
      main.current?.focus({ preventScroll: true });
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useKeys({
    "?": () => setHelp(true),
    g: () => (location.hash = "#/"),
    "Ctrl k": () => setCommands(true),
  });
  const { place, rest, query, moves } = at;
  const topic = rest[0];
  // What the token may not do is not offered.
  const tries = hasTry && (may(state, "produce") || may(state, "consume"));
  const hidden = new Set([
    ...(tries ? [] : ["try"]),
    ...(sees(state, "admin") ? [] : ["audit"]),
    ...(sees(state, "view") ? [] : ["messages", "dead"]),
  ]);
  const wrong = troubles(state);
  const bad = wrong.filter((one) => one.bad).length + Number(Boolean(state.problem ?? state.issue));
  const label =
    [...PLACES, ...OF_TOPIC].find(([name]) => name === place)?.[1] ?? OTHER_TITLES[place] ?? "Now";
  const title = [
    bad && `(${bad}!)`,
    label,
    topic && place !== "find" && `· ${topic}`,
    CLUSTER && `· ${CLUSTER}`,
    "· Duetime",
  ];
  useEffect(() => {
    document.title = title.filter(Boolean).join(" ");
  }, [title.join()]);
  const off = clockOff();
  const locked = state.problem?.status === 401;
  const ofTopic = OF_TOPIC.find(([name]) => name === place);
  const isKnown = state.topics?.some(({ name }) => name === topic);
  const places = PLACES.filter(([name]) => !hidden.has(name));
  const shownOfTopic = OF_TOPIC.filter(([name]) => !hidden.has(name));
  const body = () => {
    if (locked) return html`<${Login} wrong=${hasToken()} />`;
    if (place === "try" && !tries && !readOnly && !state.me) return html`<p class="quiet">…</p>`;
    const screen = (key, props) => html`<${Screen} key=${key} name=${place} ...${props} />`;
    if ((ofTopic || place === "message") && topic && state.topics && !isKnown)
      return html`<${UnknownTopic} name=${topic} />`;
    if (ofTopic && topic) return screen(moves, { topic, rest, query });
    if (place === "message" && rest.length >= 2)
      return screen(rest.join("/"), { topic, id: rest[1] });
    if (place === "find" && rest.length) return screen(topic, { id: topic });
    if (place && PLACES.some(([name]) => name === place) && (place !== "try" || tries))
      return screen(place);
    return html`
      ${
        place &&
        place !== "try" &&
        html`
        <div class="banner">
          Nothing is at <b>${plain(location.hash)}</b>: the link was cut off.
        </div>
      `
      }
      <${Screen} key=${moves} name="" />
    `;
  };
  return html`
    <a
      class="skip"
      href="#main"
      onClick=${(event) => {
        event.preventDefault();
        main.current.focus();
      }}
    >
      To the content
    </a>
    <header>
      <a class="brand" href="#/">
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <circle cx="16" cy="16" r="14" fill="currentColor" opacity=".9" />
          <path
            d="M16 8v8l5 4"
            fill="none"
            stroke="var(--card)"
            stroke-width="3"
            stroke-linecap="round"
          />
        </svg>Duetime
      </a>
      ${CLUSTER && html`<b class="cluster">${plain(CLUSTER)}</b>`}
      ${
        state.me?.test_clock &&
        html`<span class="tag bad" title="Time is moved by hand here: never for production">test clock</span>`
      }
      <nav aria-label="Places">
        ${places.map(
          ([name, label]) =>
            html`<a href="#/${name}" aria-current=${place === name ? "page" : undefined}>${label}</a>`,
        )}
      </nav>
      ${
        bad > 0 &&
        html`<a class="tag bad" href="#/">! ${bad === 1 ? "1 trouble" : `${bad} troubles`}</a>`
      }
      <${Search} topics=${state.topics ?? []} />
      ${
        !locked &&
        html`
        <button
          onClick=${() => setCommands(true)}
          title="Go to, or do something, by its name"
          aria-keyshortcuts="Control+K"
        >
          Commands
        </button>
      `
      }
      ${
        hasToken() &&
        html`
        <button
          onClick=${() => {
            const { [KEPT_CLAIMS]: claims } = live.kept;
            if (claims?.length) setForgets(claims.length);
            else setToken("");
          }}
          title="Forget the token of this tab"
        >
          Forget token
        </button>
      `
      }
    </header>
    <main id="main" tabindex="-1" ref=${main}>
      ${
        state.problem &&
        !locked &&
        html`<${Failed} problem=${state.problem} seen=${state.problem.status === 0 && state.at} />`
      }
      ${
        state.slow &&
        !state.problem &&
        html`
        <div class="banner">
          This node is slow: ${
            state.slow.took
              ? `its last answer took ${seconds(state.slow.took / 1000)}`
              : `it has not answered for ${seconds((Date.now() - state.slow.since) / 1000)}`
          }.${state.at ? ` What is shown is from ${time(state.at)}.` : ""}
        </div>
      `
      }
      ${
        state.issue &&
        !state.problem &&
        html`
        <div class="banner bad" role="alert">
          The store does not answer this node: ${state.issue.message}. What is shown is from ${
            state.at ? `${time(state.at)} or before` : "before"
          }; the page goes on by itself when it answers again.
        </div>
      `
      }
      ${
        (ofTopic || place === "message") &&
        topic &&
        html`
        <div class="row spread">
          <h1>${topic}</h1>
          <nav aria-label="Of this topic">
            ${shownOfTopic.map(
              ([name, label]) => html`
              <a
                href="#/${name}/${coded(topic)}"
                aria-current=${place === name ? "page" : undefined}
              >
                ${label}
              </a>
            `,
            )}
          </nav>
        </div>
      `
      }
      ${!locked && OF_NODES.has(place) && html`<${Fleet} />`}
      ${body()}
    </main>
    <footer>
      <span>
        ${
          state.at
            ? `${
                state.problem
                  ? "not answered"
                  : state.slow
                    ? "slow"
                    : state.issue
                      ? "the store does not answer"
                      : state.streams
                        ? "live"
                        : "asks every 2 s"
              }, last change ${ago(state.at)}`
            : "…"
        }
        ${
          off
            ? `; this clock is ${seconds(Math.abs(off) / 1000)} ${off > 0 ? "ahead" : "behind"}, times are the node's`
            : ""
        }
      </span>
      <span>times are those of ${ZONE}</span>
      <a href="openapi.json">OpenAPI</a>
      <a href="metrics">Metrics</a>
      <button onClick=${() => setHelp(true)}>Keys <kbd>?</kbd></button>
    </footer>
    ${
      commands &&
      !locked &&
      html`
      <${Screen}
        name="palette"
        places=${places}
        ofTopic=${shownOfTopic}
        topic=${topic && isKnown ? topic : undefined}
        topics=${(state.topics ?? []).map(({ name }) => name).sort()}
        onClose=${() => setCommands(false)}
      />
    `
    }
    ${
      forgets > 0 &&
      html`
      <${Confirm}
        title="Forget the token of this tab"
        label="Forget it"
        onClose=${() => setForgets(0)}
        onDone=${() => setToken("")}
      >
        <p>
          ${plural(forgets, "message is", "messages are")} claimed on Try it. The receipts are forgotten
          with the token: what is not settled or given back before is due again when its time is over.
        </p>
      <//>
    `
    }
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
    <${Spoken}
      of=${state.slow ? [...wrong, { key: "slow", short: "this node is slow" }] : wrong}
      known=${isWhole(state)} />
    <${Toasts} />
  `;
}

live.start();
keepFocus();
render(html`<${App} />`, document.getElementById("app"));
