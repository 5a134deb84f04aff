"use strict";
// The page shows what GET /status answers. Every text goes into the page as text (textContent), never
// as markup, since names of models, workers and causes of failures come from elsewhere.

const POLL_MS = 1000, ANSWER_MS = 10000, USAGE_MS = 10000, SURE_MS = 4000, MOST_ROWS = 100;
const find = (id) => document.getElementById(id);
let key = null; // in memory alone
let paused = false, latest = null, busy = false;

function make(tag, attributes, ...children) {
	const element = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
	for (const child of children) if (child !== null) element.append(child);
	return element;
}

// A figure: what a person reads, and the number behind it with its place in /status.
function figure(tag, place, value, text, attributes) {
	return make(tag, { ...attributes, "data-figure": place, "data-value": value === null ? "" : value }, text);
}

function draw(element, ...children) {
	element.replaceChildren(...children);
}

function count(n) {
	if (n === null || n === undefined) return "\u2013";
	if (n >= 1e9) return (n / 1e9).toFixed(2) + " G";
	if (n >= 1e6) return (n / 1e6).toFixed(2) + " M";
	if (n >= 1e5) return (n / 1e3).toFixed(0) + " k";
	return n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString("en-US") : n.toFixed(n < 10 ? 2 : 1);
}
const share = (part, whole) => (whole > 0 ? (100 * part) / whole : null);
const percent = (n) => (n === null ? "\u2013" : n.toFixed(n > 0 && n < 10 ? 1 : 0) + " %");
const ms = (n) => (n === null ? "\u2013" : n < 10000 ? Math.round(n) + " ms" : (n / 1000).toFixed(1) + " s");
function span(s) {
	if (s < 120) return Math.round(s) + " s";
	if (s < 7200) return Math.round(s / 60) + " min";
	return s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " days";
}

// --- asking -------------------------------------------------------------------------------------

// What is thrown as a string is a state of the router; anything else is a fault of this page.
function complain(error) {
	find("done").textContent = String(error);
	if (typeof error !== "string") console.error(error);
}

async function ask(path, method) {
	const headers = method === "POST" ? { "Content-Type": "application/json", "X-Requested-With": "kvway" } : {};
	if (key !== null) headers.Authorization = "Bearer " + key;
	// A router that stands still must not leave old figures here as if they were of now.
	const signal = method === "POST" ? undefined : AbortSignal.timeout(ANSWER_MS);
	const answer = await fetch(path, { method: method || "GET", headers, signal, cache: "no-store", credentials: "omit" }).catch(() => {
		throw "no answer";
	});
	if (answer.status === 401) openKey("This address needs a key" + (key === null ? "." : "; that one was not taken."));
	return answer;
}

async function messageOf(answer) {
	try {
		const body = await answer.json();
		return body.error ? body.error.message : JSON.stringify(body);
	} catch (error) {
		return "status " + answer.status;
	}
}

async function act(what, path) {
	const answer = await ask(path, "POST");
	find("done").textContent = answer.ok ? what + ": done." : what + ": " + (await messageOf(answer));
	poll();
}

// The first press asks, the second acts.
function actionButton(text, label, action) {
	const button = make("button", { type: "button", "aria-label": label }, text);
	button.addEventListener("click", () => {
		if (button.className === "sure") {
			action();
			return;
		}
		button.className = "sure";
		button.textContent = "Sure?";
		sure = label;
		setTimeout(() => {
			sure = sure === label ? null : sure;
			button.className = "";
			button.textContent = text;
		}, SURE_MS);
	});
	return button;
}
let sure = null; // label of the button that was pressed once: the table is not drawn meanwhile

// --- panels -------------------------------------------------------------------------------------

function showAbout(s) {
	const k = s.kvway;
	find("host").textContent = location.host;
	find("about").textContent = `${k.version} \u00b7 ${k.strategy} \u00b7 up ${span(k.uptime_seconds)}${k.draining ? " \u00b7 draining" : ""}`;
	document.title = (s.problems.length > 0 ? `(${s.problems.length}) ` : "") + "kvway " + location.host;
	find("reload").hidden = key === null || !k.keys;
	document.body.classList.toggle("no-actions", key === null || !k.keys);
	if (!k.keys)
		find("key-note").textContent =
			"This address has no keys (admin.keys_file), so the page only shows. Actions need one.";
}

let shownProblems = "";
function showProblems(list) {
	const text = JSON.stringify(list);
	if (text === shownProblems) return; // so that a screen reader hears changes alone
	shownProblems = text;
	const items = list.map((p) =>
		make("li", { class: p.severity, "data-code": p.code },
			make("p", {}, make("span", { class: "level" }, p.severity), make("b", { dir: "auto" }, p.what)),
			make("p", { class: "why", dir: "auto" }, "Why: " + p.why),
			make("p", { class: "do", dir: "auto" }, "Do: " + p.do)));
	draw(find("problem-list"), ...(items.length > 0 ? items : [make("li", { class: "fine" }, "Nothing that kvway can see.")]));
}

function showTiles(s) {
	const m = s.minute, seconds = Math.max(m.seconds, 1);
	const ended = m.ok + m.client_error + m.refused + m.failed + m.left;
	const promises = m.promises_kept + m.promises_late + m.promises_slow + m.promises_broken;
	const tiles = [
		["Requests/s", "minute.requests", ended / seconds, count(ended / seconds), m.failed + m.refused > 0 ? `${m.failed} failed, ${m.refused} refused` : ""],
		["In flight", "in_flight", s.in_flight, count(s.in_flight), ""],
		["Waiting", "waiting.0.requests", s.waiting[0].requests, count(s.waiting[0].requests), s.waiting[0].requests > 0 ? "oldest " + span(s.waiting[0].seconds) : ""],
		["First token, median", "minute.ttft_p50_ms", m.ttft_p50_ms, ms(m.ttft_p50_ms), m.ttft_p90_ms === null ? "" : "p90 " + ms(m.ttft_p90_ms)],
		["Prompt tokens/s", "minute.prompt_tokens", m.prompt_tokens / seconds, count(m.prompt_tokens / seconds), ""],
		["From cache", "minute.cached_tokens", share(m.cached_tokens, m.prompt_tokens), percent(share(m.cached_tokens, m.prompt_tokens)), ""],
		["Generated tokens/s", "minute.completion_tokens", m.completion_tokens / seconds, count(m.completion_tokens / seconds), ""],
		["Promises kept", "minute.promises_kept", share(m.promises_kept, promises), percent(share(m.promises_kept, promises)), promises > 0 ? `of ${count(promises)}` : ""],
	];
	draw(find("tiles"), ...tiles.map(([name, place, value, text, more]) =>
		make("div", {}, make("dt", {}, name, more !== "" ? make("span", {}, more) : null), figure("dd", place, value, text, {}))));
}

// --- charts -------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes) {
	const element = document.createElementNS(SVG, tag);
	for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
	return element;
}

// series: {name, values, style, area}; areas stand on zero, the first at the back. The newest is right.
function chart(title, unit, series, hour, steps) {
	const most = Math.max(...series.flatMap((one) => one.values.map((v) => v || 0)), 1e-9);
	const at = (i, n) => 1000 - ((n - 1 - i) * 1000) / (steps - 1), high = (v) => 100 - (96 * v) / most;
	const picture = svg("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img" });
	for (const one of series) {
		const n = one.values.length;
		let path = "", open = false;
		one.values.forEach((v, i) => {
			if (v === null) { open = false; return; }
			path += `${open ? "L" : "M"}${at(i, n).toFixed(1)} ${high(v).toFixed(1)}`;
			open = true;
		});
		if (one.area && n > 0) path = `M${at(0, n).toFixed(1)} 100L` + path.slice(1) + "L1000 100Z";
		if (path !== "") picture.append(svg("path", { d: path, class: one.style }));
	}
	const name = (one) => (series.length > 1 ? one.name + " " : "");
	const newest = (i) => series.map((one) => name(one) + unit(one.values[one.values.length - 1 - i])).join(", ");
	const now = `now ${newest(0)}; highest ${unit(most > 1e-9 ? most : 0)}`;
	picture.setAttribute("aria-label", `${title}: ${now}`);
	const read = make("span", { class: "read" }, now);
	const cursor = svg("line", { y1: 0, y2: 100, class: "cursor", visibility: "hidden" });
	picture.append(cursor);
	picture.addEventListener("pointermove", (event) => {
		const box = picture.getBoundingClientRect();
		const back = Math.round((1 - (event.clientX - box.left) / box.width) * (steps - 1));
		if (back < 0 || back >= series[0].values.length) return;
		cursor.setAttribute("x1", at(0, back + 1)), cursor.setAttribute("x2", at(0, back + 1));
		cursor.setAttribute("visibility", "visible");
		read.textContent = `${back === 0 ? "now" : span(back * hour.step_s) + " ago"}: ${newest(back)}`;
	});
	picture.addEventListener("pointerleave", () => {
		cursor.setAttribute("visibility", "hidden");
		read.textContent = now;
	});
	const legend = make("span", {}, make("b", {}, title));
	if (series.length > 1)
		for (const one of series)
			legend.append(" ", make("span", { class: "key-dot " + one.style.replace("l-", "b-") }), one.name);
	return make("figure", {}, make("figcaption", {}, legend, read), picture);
}

let hovered = false;
function showCharts(s) {
	if (hovered) return; // what is being read stays
	const h = s.hour, n = h.requests.length, steps = Math.max(n, 20); // up to 121: an hour
	find("hour-span").textContent = `last ${span(steps * h.step_s)}, in steps of ${h.step_s} s`;
	const rate = (list) => list.map((v, i) => v / (i === n - 1 ? Math.max(h.last_s, 1) : h.step_s));
	// A step that has just begun shows nothing yet: the last value stands in.
	const settle = (list) => (h.last_s < 5 && n > 1 ? [...list.slice(0, -1), list[n - 2]] : list);
	const perSecond = (v) => count(v === undefined ? null : v) + "/s";
	const bad = h.failed.map((v, i) => v + h.refused[i]);
	draw(find("charts"),
		chart("Requests", perSecond, [
			{ name: "all", values: settle(rate(h.requests)), style: "f-blue", area: true },
			{ name: "failed or refused", values: settle(rate(bad)), style: "f-red", area: true }], h, steps),
		chart("First token", (v) => ms(v === undefined ? null : v), [
			{ name: "median", values: settle(h.ttft_p50_ms), style: "l-blue" },
			{ name: "p90", values: settle(h.ttft_p90_ms), style: "l-soft" }], h, steps),
		chart("Prompt tokens", perSecond, [
			{ name: "all", values: settle(rate(h.prompt_tokens)), style: "f-grey", area: true },
			{ name: "from cache", values: settle(rate(h.cached_tokens)), style: "f-green", area: true }], h, steps),
		chart("Generated tokens", perSecond, [
			{ name: "generated", values: settle(rate(h.completion_tokens)), style: "f-blue", area: true }], h, steps),
		chart("Waiting", (v) => count(v === undefined ? null : v), [
			{ name: "most", values: h.waiting_most, style: "f-amber", area: true }], h, steps),
		chart("Promises missed", (v) => percent(v === undefined ? null : v), [
			{ name: "missed", values: h.promises_missed.map((v, i) => share(v, v + h.promises_kept[i]) || 0), style: "f-red", area: true }], h, steps));
}

// --- tables -------------------------------------------------------------------------------------

function stateClass(w) {
	if (w.state === "up") return "state-up";
	return w.state === "draining" || w.leaves ? "state-rest" : "state-out";
}

function workerRow(w, i) {
	const place = (name) => `workers.${i}.${name}`, label = w.id || w.url;
	const number = (name, text) => figure("td", place(name), w[name] === undefined ? null : w[name], text, { class: "n" });
	const kv = number("kv_used", w.kv_used === null || w.kv_used === undefined ? "\u2013" : percent(100 * w.kv_used));
	if (w.kv_used > 0) {
		const fill = make("i");
		fill.style.width = Math.min(100, 100 * w.kv_used) + "%";
		kv.append(make("span", { class: "meter", "aria-hidden": "true" }, fill));
	}
	const path = "/workers/" + encodeURIComponent(label);
	const rests = w.rests === true;
	const slow = w.slow ? make("span", { class: "slow", title: w.slow }, " slow") : null;
	const action = w.leaves || w.state === "removed" ? "" : rests
		? actionButton("Undrain", "Undrain " + label, () => act("Undrain " + label, path + "/undrain").catch(complain))
		: actionButton("Drain", "Drain " + label, () => act("Drain " + label, path + "/drain").catch(complain));
	const models = (w.models || []).slice(0, 8).join(", ") + ((w.models || []).length > 8 ? ", \u2026" : "");
	return make("tr", { "data-worker": w.url },
		make("th", { scope: "row", class: label.length < 32 ? "name short" : "name" }, make("bdi", {}, label), make("bdi", { class: "models" }, models)),
		make("td", { class: stateClass(w) }, w.leaves ? "leaves" : w.state, slow),
		make("td", {}, w.role || "\u2013"),
		number("prefilling", count(w.prefilling)), number("decoding", count(w.decoding)),
		number("queue_seconds", w.queue_seconds === undefined ? "\u2013" : w.queue_seconds.toFixed(2)), kv,
		number("hit_share", percent(w.hit_share === null || w.hit_share === undefined ? null : 100 * w.hit_share)),
		number("requests_per_second", count(w.requests_per_second)),
		number("tokens_per_second", count(w.tokens_per_second)),
		number("ms_per_token", w.ms_per_token ? w.ms_per_token.toFixed(1) : "\u2013"),
		number("prefill_tokens_per_second", w.prefill_tokens_per_second ? count(w.prefill_tokens_per_second) : "\u2013"),
		make("td", { class: "act" }, action));
}

function rows(table, list, empty, columns) {
	draw(find(table).tBodies[0], ...(list.length > 0 ? list : [make("tr", {}, make("td", { colspan: columns, class: "hint" }, empty))]));
}

// What the button of a cell does; null: there is none.
const labelOf = (cell) => cell.firstElementChild && cell.firstElementChild.getAttribute("aria-label");

function showWorkers(s) {
	const up = s.workers.filter((w) => w.usable).length;
	find("worker-count").textContent = `${up} of ${s.workers.length} can be used`;
	if (sure !== null || find("worker-table").contains(document.activeElement)) {
		// A button that somebody is about to press stays, until it means something else: only figures are renewed.
		s.workers.forEach((w, i) => {
			const row = [...find("worker-table").tBodies[0].rows].find((r) => r.dataset.worker === w.url);
			if (!row) return;
			const cells = [...row.cells], fresh = [...workerRow(w, i).cells], last = cells.length - 1;
			cells.slice(0, last).forEach((cell, n) => cell.replaceWith(fresh[n]));
			if (sure !== null || labelOf(cells[last]) === labelOf(fresh[last])) return;
			const focused = cells[last].contains(document.activeElement);
			cells[last].replaceWith(fresh[last]);
			if (focused && fresh[last].firstElementChild) fresh[last].firstElementChild.focus();
		});
		return;
	}
	const order = s.workers.map((w, i) => i);
	const rank = (w) => (!w.usable ? 0 : w.slow ? 1 : 2);
	if (order.length > MOST_ROWS) order.sort((a, b) => rank(s.workers[a]) - rank(s.workers[b]) || s.workers[b].inflight - s.workers[a].inflight);
	if (order.length > MOST_ROWS) find("worker-count").textContent += `; ${MOST_ROWS} are shown, those out, slow or busy first`;
	rows("worker-table", order.slice(0, MOST_ROWS).map((i) => workerRow(s.workers[i], i)), "No worker is known.", 13);
}

function tokenBar(title, prefix, t) {
	const computed = Math.max(0, t.prompt_tokens - t.cached_tokens);
	const parts = [["from a worker's cache", "cached_tokens", t.cached_tokens, "f-green"], ["computed", "computed", computed, "f-grey"]];
	const bar = make("div", { class: "bar", "aria-hidden": "true" });
	for (const [, , value, style] of parts) {
		const piece = make("i", { class: style });
		piece.style.width = (share(value, t.prompt_tokens) || 0) + "%";
		bar.append(piece);
	}
	const legend = make("p", { class: "legend" }, ...parts.map(([name, place, value, style]) =>
		make("span", {}, make("span", { class: "key-dot " + style }), name + " ",
			figure("b", `${prefix}.${place}`, value, count(value)), ` (${percent(share(value, t.prompt_tokens))})`)));
	legend.append(make("span", { class: "hint" }, "predicted from cache: ",
		figure("span", `${prefix}.predicted_cached_tokens`, t.predicted_cached_tokens, count(t.predicted_cached_tokens))));
	if (t.prefilled_elsewhere_tokens > 0)
		legend.append(make("span", { class: "hint" }, "prefilled by another worker: ",
			figure("span", `${prefix}.prefilled_elsewhere_tokens`, t.prefilled_elsewhere_tokens, count(t.prefilled_elsewhere_tokens))));
	return make("div", {}, make("p", {}, `${title}: `, figure("b", `${prefix}.prompt_tokens`, t.prompt_tokens, count(t.prompt_tokens)), " prompt tokens"), bar, legend);
}

const REFUSALS = [
	["refused_service_level", "its promise could not be kept"], ["refused_deadline", "it waited too long"],
	["refused_queue_full", "the queue was full"], ["refused_rate", "a limit of its key, tenant or model"],
	["refused_key", "its key"], ["refused_body_memory", "limits.body_memory"],
	["refused_connections", "limits.connections (connections)"], ["engine_full", "full workers (tried elsewhere)"],
];

function showFlow(s) {
	rows("waiting-table", s.waiting.filter((w, i) => i === 0 || w.requests > 0).map((w, i) => make("tr", {},
		make("td", { class: "name" }, make("bdi", {}, w.for)),
		figure("td", `waiting.${i}.requests`, w.requests, count(w.requests), { class: "n" }),
		make("td", { class: "n" }, w.requests > 0 ? w.seconds.toFixed(1) : "\u2013"))), "", 3);
	rows("refused-table", REFUSALS.filter(([name], i) => i < 3 || s.totals[name] > 0).map(([name, text]) => make("tr", {},
		make("td", {}, text),
		figure("td", "five_minutes." + name, s.five_minutes[name], count(s.five_minutes[name]), { class: "n" }),
		figure("td", "totals." + name, s.totals[name], count(s.totals[name]), { class: "n" }))), "", 3);
}

function showPrefixes(s) {
	const p = s.prefixes;
	find("prefix-note").textContent = !s.kvway.traced
		? "Requests are not traced (trace.requests is 0), so none is counted."
		: p.seen < p.ended ? `Counted in ${count(p.seen)} of ${count(p.ended)} requests: the others were forgotten too soon (trace.requests).` : "";
	rows("prefix-table", p.items.map((one, i) => make("tr", {},
		make("td", { class: "name short" }, one.prefix),
		figure("td", `prefixes.items.${i}.tokens`, one.tokens, count(one.tokens), { class: "n" }),
		figure("td", `prefixes.items.${i}.hits`, one.hits, count(one.hits), { class: "n" }),
		make("td", { class: "name wide-name" }, one.workers.join(", ")))), "No prompt has been predicted to hit a cache yet.", 4);
}

function show(s) {
	latest = s;
	showAbout(s);
	showProblems(s.problems);
	showTiles(s);
	showCharts(s);
	showWorkers(s);
	draw(find("token-bars"), tokenBar("Last 5 minutes", "five_minutes", s.five_minutes), tokenBar("Since the start", "totals", s.totals));
	showFlow(s);
	showPrefixes(s);
}

// --- a request's story --------------------------------------------------------------------------

function noteText(note) {
	const { ms: at, what, ...rest } = note;
	return what + (Object.keys(rest).length > 0 ? ": " : "") + Object.entries(rest).map(([name, value]) => `${name} ${value}`).join(", ");
}

async function showStory(query) {
	const way = find("story-way"), answer = await ask("/trace?" + query);
	if (!answer.ok) {
		draw(way, make("li", {}, make("span"), make("span", {}, await messageOf(answer))));
		return;
	}
	const lines = (await answer.text()).trim().split("\n").map((line) => JSON.parse(line));
	const request = lines.find((line) => line.way);
	if (!request) {
		draw(way, make("li", {}, make("span"), make("span", {}, "kvway remembers no such request.")));
		return;
	}
	const head = `${request.route} ${request.model || ""} ${request.status === undefined ? "under way" : request.status + " " + request.end} in ${request.total_ms} ms, ${request.ts}, id ${request.request_id}`;
	draw(way, make("li", {}, make("span"), make("b", { dir: "auto" }, head)),
		...request.way.map((note) => make("li", {}, make("span", {}, note.ms.toFixed(1) + " ms"), make("span", { dir: "auto" }, noteText(note)))));
}

// --- usage --------------------------------------------------------------------------------------

let usageAt = 0, usageThere = null;
async function showUsage() {
	if (Date.now() - usageAt < USAGE_MS) return;
	usageAt = Date.now();
	if (usageThere === null) {
		const paths = await ask("/openapi.json");
		usageThere = paths.ok && "/usage" in (await paths.json()).paths;
	}
	const answer = usageThere ? await ask("/usage") : { ok: false };
	find("usage-panel").hidden = !answer.ok;
	if (!answer.ok) return;
	const usage = await answer.json();
	const entries = usage.entries.slice(0, 50);
	if (usage.other && usage.other.requests > 0) entries.push({ key: "all others", tenant: "", model: "", ...usage.other });
	const names = ["requests", "refused", "failed", "prompt_tokens", "cached_tokens", "completion_tokens"];
	rows("usage-table", entries.map((e, i) => make("tr", {},
		...["key", "tenant", "model"].map((name) => make("td", { class: "name" }, make("bdi", {}, e[name] || "\u2013"))),
		...names.map((name) => figure("td", `usage.${i}.${name}`, e[name], count(e[name]), { class: "n" })))), "Nothing was used yet.", 9);
}

// --- the page's own life ------------------------------------------------------------------------

function openKey(note) {
	find("key-form").hidden = false;
	find("key-open").setAttribute("aria-expanded", "true");
	if (note) find("key-note").textContent = note;
}

async function poll() {
	if (busy || paused || document.hidden) return;
	busy = true;
	try {
		const answer = await ask("/status");
		if (!answer.ok) throw answer.status === 401 ? "a key is needed" : await messageOf(answer);
		show(await answer.json());
		find("live").className = "";
		find("live").textContent = "live";
		await showUsage();
	} catch (error) {
		find("live").className = "off";
		find("live").textContent = String(error);
		if (typeof error !== "string") console.error(error);
	} finally {
		busy = false;
	}
}

find("pause").addEventListener("click", () => {
	paused = !paused;
	find("pause").setAttribute("aria-pressed", paused);
	find("pause").textContent = paused ? "Go on" : "Pause";
	find("live").textContent = paused ? "paused" : "live";
	poll();
});
find("key-open").addEventListener("click", () => {
	const form = find("key-form");
	form.hidden = !form.hidden;
	find("key-open").setAttribute("aria-expanded", !form.hidden);
	if (!form.hidden) find("key").focus();
});
find("key-form").addEventListener("submit", (event) => {
	event.preventDefault();
	key = find("key").value.trim() || null;
	find("key").value = "";
	find("key-note").textContent = "It stays in this tab's memory and is gone with the tab.";
	find("key-form").hidden = key !== null;
	find("key-open").setAttribute("aria-expanded", key === null);
	usageAt = 0, usageThere = null;
	poll();
});
find("key-drop").addEventListener("click", () => {
	key = null;
	find("key").value = "";
	if (latest !== null) showAbout(latest);
});
find("reload").addEventListener("click", () => act("Reload", "/reload").catch(complain));
find("story-form").addEventListener("submit", (event) => {
	event.preventDefault();
	showStory("last=1&id=" + encodeURIComponent(find("story-id").value.trim())).catch(complain);
});
find("story-last").addEventListener("click", () => showStory("last=1&status=5xx").catch(complain));
find("charts").addEventListener("pointerenter", () => { hovered = true; });
find("charts").addEventListener("pointerleave", () => { hovered = false; });
document.addEventListener("visibilitychange", poll);
setInterval(poll, POLL_MS);
poll();
