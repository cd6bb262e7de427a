const at = id => document.getElementById(id);
async function ask(path) {
  const token = at("token").value;
  const answer = await fetch(path, token ? {headers: {Authorization: "Bearer " + token}} : {});
  const said = await answer.json();
  if (said.error) throw new Error(said.error.message + ": " + said.error.fix);
  return said;
}
function row(table, cells, act) {
  const line = table.insertRow();
  for (const cell of cells) line.insertCell().textContent = cell ?? "";
  if (act) { line.onclick = act; line.className = "link"; }
}
function table(title, names) {
  at("title").textContent = title;
  const made = at("rows");
  made.textContent = "";
  row(made, names);
  return made;
}
const time = ms => ms === null ? "" : new Date(ms).toISOString();
const say = text => at("said").textContent = text;
const guarded = act => (...given) => act(...given).then(() => say(""), e => say(e.message));
const messages = guarded(async (topic, queue, offset) => {
  const path = `/v1/topics/${encodeURIComponent(topic)}/queues/${queue}/messages?count=50`;
  const said = await ask(path + (offset === undefined ? "" : "&offset=" + offset));
  const made = table(`${topic}/${queue}`, ["offset", "stored", "tag", "keys", "body"]);
  for (const m of said.messages)
    row(made, [m.queue_offset, time(m.store_timestamp), m.tags, m.keys.join(" "), (m.body ?? m.body_base64).slice(0, 200)]);
  if (!said.end) row(made, ["more"], () => messages(topic, queue, said.next_offset));
});
const PAGE = 200;
const queues = guarded(async (topic, after) => {
  const path = `/v1/topics/${encodeURIComponent(topic)}/queues?count=${PAGE}`;
  const said = await ask(path + (after === undefined ? "" : "&after=" + after));
  const made = table(topic, ["queue", "first", "end", "messages", "oldest", "newest"]);
  for (const q of said.queues)
    row(made, [q.queue_id, q.min_offset, q.max_offset, q.messages, time(q.oldest), time(q.newest)],
        () => messages(topic, q.queue_id));
  if (said.next !== undefined) row(made, ["more"], () => queues(topic, said.next));
});
const topics = guarded(async after => {
  const given = (name, value) => value ? `&${name}=` + encodeURIComponent(value) : "";
  const said = await ask(`/v1/topics?count=${PAGE}` + given("prefix", at("prefix").value) + given("after", after));
  const made = table("topics", ["topic", "queues", "messages", "bytes", "oldest", "newest"]);
  for (const t of said.topics)
    row(made, [t.topic, t.queues, t.messages, t.bytes, time(t.oldest), time(t.newest)], () => queues(t.topic));
  if (said.next !== undefined) row(made, ["more"], () => topics(said.next));
});
const sinks = guarded(async () => {
  const said = await ask("/v1/sinks");
  const made = table("sinks", ["sink", "everything below", "queues", "not given yet", "as of commit"]);
  for (const s of said.sinks) row(made, [s.sink, s.physical_offset, s.queues, s.left, s.commit]);
});
at("sinks").onclick = () => sinks();
at("read").onclick = () => topics();
at("prefix").onchange = () => topics();
topics();
