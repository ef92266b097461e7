// Reads /metrics every two seconds and draws ten minutes of it.
'use strict';
const INTERVAL_MS = 2000;
const MOST_POINTS = 300;

// The samples of one scrape: name -> [{labels, value}].
function parse(text) {
  const samples = new Map();
  for (const line of text.split('\n')) {
    const match = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] || '').matchAll(/(\w+)="([^"]*)"/g)) labels[name] = value;
    if (!samples.has(match[1])) samples.set(match[1], []);
    samples.get(match[1]).push({ labels, value: Number(match[3]) });
  }
  return samples;
}

const sum = (samples, name) => {
  const found = samples.get('cambium_' + name);
  return found ? found.reduce((total, sample) => total + sample.value, 0) : null;
};

// Commands of all names by the upper bound of their bucket, cumulative.
function buckets(samples) {
  const counts = new Map();
  for (const { labels, value } of samples.get('cambium_command_seconds_bucket') || []) {
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    counts.set(bound, (counts.get(bound) || 0) + value);
  }
  return [...counts].sort((one, other) => one[0] - other[0]);
}

// A percentile in milliseconds of the commands between two scrapes, within its bucket by
// linear interpolation, as Prometheus' histogram_quantile computes it.
function percentile(before, after, share) {
  const old = new Map(buckets(before));
  const counts = buckets(after).map(([bound, count]) => [bound, count - (old.get(bound) || 0)]);
  if (counts.length === 0) return null;
  const total = counts[counts.length - 1][1];
  if (!(total > 0)) return null;
  let [lower, below] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= share * total) {
      if (bound === Infinity) return lower * 1000;
      const part = count > below ? (share * total - below) / (count - below) : 0;
      return (lower + (bound - lower) * part) * 1000;
    }
    [lower, below] = [bound, count];
  }
  return null;
}

const rate = (name) => (before, after, seconds) => {
  const [old, now] = [sum(before, name), sum(after, name)];
  return old === null || now === null ? null : Math.max(0, now - old) / seconds;
};
const gauge = (name, factor = 1) => (before, after) => {
  const value = sum(after, name);
  return value === null ? null : value * factor;
};

const CHARTS = [
  ['Commands per second', [['commands', rate('command_seconds_count'), '#2563eb']]],
  ['Latency, milliseconds', [
    ['p50', (before, after) => percentile(before, after, 0.5), '#059669'],
    ['p99', (before, after) => percentile(before, after, 0.99), '#dc2626']]],
  ['Network, MB per second', [
    ['received', (...scrapes) => rate('received_bytes_total')(...scrapes) / 1e6, '#2563eb'],
    ['sent', (...scrapes) => rate('sent_bytes_total')(...scrapes) / 1e6, '#d97706']]],
  ['Cache, % of reads answered', [['hits', gauge('cache_hit_ratio', 100), '#059669']]],
  ['Space, MB', [
    ['on the device', gauge('device_bytes', 1e-6), '#7c3aed'],
    ['cache', gauge('cache_bytes', 1e-6), '#059669']]],
  ['Background work per second', [
    ['flushes', rate('flushes'), '#2563eb'],
    ['compactions', rate('compactions'), '#7c3aed']]],
];

// Shown by a node of a cluster.
const CLUSTER_CHARTS = [
  ['Replication lag, batches', [['of all chains', gauge('chain_lag_batches'), '#d97706']]],
  ['Replication lag, seconds', [['longest', gauge('replication_lag_seconds'), '#dc2626']]],
];

const draw = ([title, lines]) => {
  const place = document.createElement('div');
  const heading = document.createElement('h2');
  heading.textContent = title;
  place.append(heading);
  document.getElementById('charts').append(place);
  const style = getComputedStyle(document.body).color;
  const axis = { stroke: style, grid: { stroke: '#8884' } };
  const data = [[], ...lines.map(() => [])];
  const plot = new uPlot({
    width: place.clientWidth, height: 180, axes: [axis, { ...axis, size: 60 }],
    scales: { y: { range: (_, low, high) => [0, (high || 0) > 0 ? high * 1.1 : 1] } },
    series: [{}, ...lines.map(([label, , stroke]) => ({ label, stroke, width: 1.5, spanGaps: true }))],
  }, data, place);
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 180 })).observe(place);
  return { lines, data, plot };
};
const charts = CHARTS.map(draw);

const shown = (value) => (value === null ? '–' : value.toLocaleString('en', { maximumFractionDigits: 2 }));
function show(samples) {
  const numbers = [
    ['keys', sum(samples, 'keys')], ['clients', sum(samples, 'connected_clients')],
    ['commands', sum(samples, 'command_seconds_count')], ['errors', sum(samples, 'command_errors_total')],
    ['write amplification', sum(samples, 'write_amplification')],
    ['space amplification', sum(samples, 'space_amplification')],
    ['stalls', sum(samples, 'stalls')],
  ];
  document.getElementById('numbers').replaceChildren(...numbers.map(([name, value]) => {
    const [pair, term, number] = ['div', 'dt', 'dd'].map((tag) => document.createElement(tag));
    term.textContent = name;
    number.textContent = shown(value);
    pair.append(term, number);
    return pair;
  }));
}

// The chains that a node is a member of, a row each.
function showChains(samples) {
  const chains = samples.get('cambium_chain_epoch');
  const table = document.getElementById('chains');
  if (!chains) return;
  if (table.hidden) charts.push(...CLUSTER_CHARTS.map(draw));
  table.hidden = false;
  const of = (name, partition) => (samples.get('cambium_chain_' + name) || [])
    .find(({ labels }) => labels.partition === partition);
  const figure = (name, partition, factor, unit = '') => {
    const found = of(name, partition);
    return found ? shown(found.value * factor) + unit : '';
  };
  table.tBodies[0].replaceChildren(...chains.map(({ labels: { partition, role }, value }) => {
    const row = document.createElement('tr');
    const lag = of('lag_batches', partition);
    for (const text of [partition, shown(value), role, lag ? lag.labels.to : '',
      figure('lag_batches', partition, 1), figure('lag_bytes', partition, 1e-3),
      figure('lag_seconds', partition, 1), figure('catch_up_ratio', partition, 100, ' %')]) {
      const cell = document.createElement('td');
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }));
}

let last = null;
async function scrape() {
  const state = document.getElementById('state');
  try {
    const answer = await fetch('/metrics', { cache: 'no-store' });
    if (!answer.ok) throw new Error(await answer.text());
    const now = { seconds: performance.now() / 1000, samples: parse(await answer.text()) };
    show(now.samples);
    showChains(now.samples);
    const failing = sum(now.samples, 'write_failing') > 0;
    state.className = failing ? 'failing' : '';
    state.textContent = failing ? 'The last write failed.'
      : `Running for ${shown(sum(now.samples, 'uptime_seconds'))} seconds.`;
    if (last) {
      for (const { lines, data, plot } of charts) {
        const values = lines.map(([, value]) => value(last.samples, now.samples, now.seconds - last.seconds));
        [Date.now() / 1000, ...values].forEach((value, place) => {
          data[place].push(value);
          if (data[place].length > MOST_POINTS) data[place].shift();
        });
        plot.setData(data);
      }
    }
    last = now;
  } catch (error) {
    state.className = 'failing';
    state.textContent = `No answer: ${error.message}`;
  }
  setTimeout(scrape, INTERVAL_MS);
}
scrape();
