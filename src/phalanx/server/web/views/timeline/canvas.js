// The canvas of the timeline: drag to move, wheel to scroll, with Ctrl or + and − to zoom, click or Page keys to choose.
import { html, useEffect, useLayoutEffect, useRef } from "../../core/dom.js";
import { LEFT, TOP, barAt, paint } from "./paint.js";

const SPAN_LEAST_MS = 60_000;
const SPAN_MOST_MS = 62 * 86_400_000;

// What changes with every frame stays out of the components.
export class Painter {
  #canvas;
  #request = 0;
  scene = null;

  constructor(canvas, view, settle) {
    this.#canvas = canvas;
    this.view = view;
    this.settle = settle;
    this.context = canvas.getContext("2d", { alpha: false });
  }

  get width() {
    return this.#canvas.clientWidth;
  }

  get height() {
    return this.#canvas.clientHeight;
  }

  resize() {
    const ratio = Math.min(2, devicePixelRatio || 1);
    this.#canvas.width = this.width * ratio;
    this.#canvas.height = this.height * ratio;
    this.draw();
  }

  draw() {
    this.#request ||= requestAnimationFrame(() => {
      this.#request = 0;
      if (this.scene) paint(this.context, this.scene, this.view, this.width, this.height, Math.min(2, devicePixelRatio || 1));
    });
  }

  #go(view) {
    const most = Math.max(0, (this.scene?.layout.height ?? 0) - this.height + TOP + 10);
    this.view = { ...view, start_ms: Math.round(view.start_ms), top: Math.min(most, Math.max(0, view.top)) };
    this.draw();
    this.settle(this.view);
  }

  pan(dx, dy) {
    this.#go({ ...this.view, start_ms: this.view.start_ms - (dx / (this.width - LEFT)) * this.view.span_ms, top: this.view.top - dy });
  }

  // Without a place: around what is chosen, else around now, else the middle; what one looks at stays in sight.
  zoom(factor, px = this.#focus()) {
    const span_ms = Math.min(SPAN_MOST_MS, Math.max(SPAN_LEAST_MS, this.view.span_ms / factor));
    const part = Math.max(0, px - LEFT) / (this.width - LEFT);
    this.#go({ ...this.view, span_ms, start_ms: this.view.start_ms + part * (this.view.span_ms - span_ms) });
  }

  #focus() {
    const { chosen, now_ms } = this.scene ?? {};
    const until_ms = this.view.start_ms + this.view.span_ms;
    const seen = (ms) => ms >= this.view.start_ms && ms <= until_ms;
    const middle_ms = chosen && (Math.max(chosen.from_ms, this.view.start_ms) + Math.min(chosen.to_ms, until_ms)) / 2;
    const ms = chosen && seen(middle_ms) ? middle_ms : seen(now_ms) ? now_ms : this.view.start_ms + this.view.span_ms / 2;
    return LEFT + ((ms - this.view.start_ms) / this.view.span_ms) * (this.width - LEFT);
  }

  show(span_ms, now_ms) {
    this.#go({ ...this.view, span_ms, start_ms: now_ms - span_ms * 0.8 });
  }

  at(event) {
    const box = this.#canvas.getBoundingClientRect();
    return { px: event.clientX - box.left, py: event.clientY - box.top };
  }

  barAt({ px, py }) {
    return this.scene && barAt(this.scene.layout, this.view, this.width, px, py, this.scene.now_ms);
  }

  reveal(bar) {
    const { layout } = this.scene;
    const at = layout.rows.findIndex((row) => row.bars.includes(bar));
    if (at < 0) return;
    const seen = layout.tops[at] >= this.view.top && layout.tops[at] < this.view.top + this.height - TOP - 20;
    const inside = bar.from_ms < this.view.start_ms + this.view.span_ms && bar.to_ms > this.view.start_ms;
    this.#go({ ...this.view, top: seen ? this.view.top : layout.tops[at], start_ms: inside ? this.view.start_ms : bar.from_ms - this.view.span_ms / 4 });
  }
}

const KEYS = { ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };

const useDrag = (painter, choose) => {
  const drag = useRef(null);
  return {
    onPointerDown: (event) => {
      event.currentTarget.setPointerCapture(event.pointerId);
      drag.current = { x: event.clientX, y: event.clientY, moved: false };
    },
    onPointerMove: (event) => {
      if (!drag.current) return;
      const [dx, dy] = [event.clientX - drag.current.x, event.clientY - drag.current.y];
      if (!drag.current.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
      drag.current = { x: event.clientX, y: event.clientY, moved: true };
      painter.current.pan(dx, dy);
    },
    onPointerUp: (event) => {
      if (drag.current && !drag.current.moved) choose(painter.current.barAt(painter.current.at(event)));
      drag.current = null;
    },
  };
};

export const TimelineCanvas = ({ painter, scene, first, settle, choose, step, open, label }) => {
  const canvas = useRef();
  useLayoutEffect(() => {
    painter.current = new Painter(canvas.current, first, (view) => painter.current.settled(view));
    const observer = new ResizeObserver(() => painter.current.resize());
    observer.observe(canvas.current);
    const onWheel = (event) => {
      event.preventDefault();
      const { px } = painter.current.at(event);
      if (event.ctrlKey || event.metaKey) painter.current.zoom(Math.exp(-event.deltaY * 0.002), px);
      else painter.current.pan(-event.deltaX, -event.deltaY);
    };
    canvas.current.addEventListener("wheel", onWheel, { passive: false });
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    painter.current.settled = settle;
  });
  useEffect(() => {
    painter.current.scene = scene;
    painter.current.draw();
  }, [scene]);
  const onKeyDown = (event) => {
    if (event.key in KEYS) painter.current.pan(...KEYS[event.key]);
    else if (event.key === "+" || event.key === "=") painter.current.zoom(1.5);
    else if (event.key === "-") painter.current.zoom(1 / 1.5);
    else if (event.key === "PageDown") step(1);
    else if (event.key === "PageUp") step(-1);
    else if (event.key === "Enter") open();
    else return;
    event.preventDefault();
  };
  const drag = useDrag(painter, choose);
  return html`<div class="map"><canvas ref=${canvas} tabindex="0" role="application" aria-label=${label} aria-describedby="timeline-help" onKeyDown=${onKeyDown} ...${drag}></canvas>
    <div class="map-buttons"><button type="button" class="icon" aria-label="Zoom in" onClick=${() => painter.current.zoom(1.6)}>+</button><button type="button" class="icon" aria-label="Zoom out" onClick=${() => painter.current.zoom(1 / 1.6)}>−</button></div></div>`;
};
