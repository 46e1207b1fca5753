#!/usr/bin/env python3
"""A slow, plain replay that the C code is checked against; it shares no code with it.

    reference.py --nodes FILE --pods FILE --order FILE --policy NAME [--decisions FILE] [--totals]
    reference.py --nodes FILE --pods FILE --order FILE --write-order SEED

Reads node and pod lists in the openb CSV format and an order file, places every arrival by the
policy (fgd, ca-fgd, bestfit, dotprod, clustering, packing, spread; ties by rank, smallest first)
and writes one row an arrival: step,pod,node,gpus,measure, the last one being the cluster sum of the
measure (CA's for ca-fgd, else FGD's) after the arrival, times K. --totals prints one line of sums.
--write-order makes the order file: a shuffle, clones up to 1.3 times the cluster's GPUs, and a
random rank for each node.

The measure is that of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023, with the workload's counts as integer weights, so
that it is exact; the score 100 / (1 + exp(dF / 1000)) is compared by its thresholds in 60-digit
decimals. ca-fgd is defined in ../../fragmentation/README.md.
"""
import argparse
import csv
import random
import sys
import zlib
from collections import Counter
from decimal import Decimal, getcontext
from fractions import Fraction

getcontext().prec = 60
THRESHOLDS = [None] + [1000 * (Decimal(100 - k) / Decimal(k)).ln() for k in range(1, 100)]


class Pod:
    def __init__(self, row):
        self.name = row["name"]
        self.cpu = int(row["cpu_milli"])
        self.mem = int(row["memory_mib"])
        self.count = int(row["num_gpu"])
        self.milli = int(row["gpu_milli"]) if self.count else 0
        self.spec = row.get("gpu_spec") or ""
        self.shape = (self.cpu, self.mem, self.count, self.milli, self.spec)

    @property
    def shared(self):
        return self.count == 1 and self.milli < 1000


class Node:
    def __init__(self, row):
        self.name = row["sn"]
        self.rank = None
        self.cpu = self.cpu_all = int(row["cpu_milli"])
        self.mem = int(row["memory_mib"])
        self.left = [1000] * int(row["gpu"])
        self.model = row["model"] or ""
        self.tags = Counter()

    def accepts(self, spec):
        return not spec or (self.model != "" and self.model in spec.split("|"))


class Class_:
    """A request class of the workload: what fragmentation is measured against."""

    def __init__(self, key, weight):
        self.cpu, self.milli, self.count, self.spec = key
        self.weight = weight


def typical(pods, gpu_only):
    pods = [p for p in pods if p.count or not gpu_only]
    counts = Counter((p.cpu, p.milli, p.count, p.spec) for p in pods)
    ordered = sorted(counts.items(), key=lambda kv: (kv[1], kv[0]), reverse=True)
    kept, cum = [], 0
    for key, count in ordered:
        kept.append(Class_(key, count))
        cum += count
        if 100 * cum >= 95 * len(pods):
            break
    return kept, cum


def frag(cls, node, cpu, left):
    """F_m(n): GPU milli of the node that the class cannot use."""
    total = sum(left)
    if cls.count == 0 or cpu < cls.cpu or not node.accepts(cls.spec):
        return total
    if sum(1 for r in left if r >= cls.milli) < cls.count:
        return total
    return sum(r for r in left if r < cls.milli)


class Fgd:
    def __init__(self, pods):
        self.classes, self.total = typical(pods, gpu_only=False)
        self.bounds = [int((t * self.total).to_integral_value(rounding="ROUND_FLOOR"))
                       for t in THRESHOLDS[1:]]

    def n(self, node, cpu, left):
        return sum(c.weight * frag(c, node, cpu, left) for c in self.classes)

    def score(self, before, after):
        return sum(1 for j in self.bounds if after - before <= j)


class CaFgd:
    def __init__(self, pods):
        self.classes, self.total = typical(pods, gpu_only=True)
        gpu_pods = [p for p in pods if p.count]
        self.gpu_sum = sum(p.count * p.milli for p in gpu_pods)
        self.cpu_sum = sum(p.cpu for p in gpu_pods)

    def fill(self, cls, node, cpu, left):
        if not node.accepts(cls.spec):
            return 0
        if cls.count == 1:
            fits = sum(r // cls.milli for r in left)
        else:
            fits = sum(1 for r in left if r >= 1000) // cls.count
        gpu = fits * cls.milli * cls.count
        return gpu if cls.cpu == 0 else min(gpu, cpu * cls.milli * cls.count // cls.cpu)

    def n(self, node, cpu, left):
        total = sum(left)
        balance = 8 * total - 12 * self.gpu_sum * cpu // self.cpu_sum
        n = self.total * max(0, balance)
        for c in self.classes:
            n += c.weight * (total - self.fill(c, node, cpu, left))
            n += 3 * c.weight * frag(c, node, cpu, left)
        return n

    def score(self, before, after):
        return (before - after) // (480 * self.total)


class Memo:
    """n() depends on the node's type, its CPU and the sorted remainders only."""

    def __init__(self, measure):
        self.measure, self.cache = measure, {}

    def n(self, node, cpu, left):
        key = (node.model, cpu, tuple(sorted(left)))
        if key not in self.cache:
            self.cache[key] = self.measure.n(node, cpu, left)
        return self.cache[key]

    def score(self, before, after):
        return self.measure.score(before, after)


def fits(node, pod):
    if node.cpu < pod.cpu or node.mem < pod.mem:
        return False
    if pod.count == 0:
        return True
    return bool(node.left) and node.accepts(pod.spec) and \
        sum(1 for r in node.left if r >= pod.milli) >= pod.count


def idle_devices(node, count):
    return [i for i, r in enumerate(node.left) if r == 1000][:count]


def after(node, pod, devices):
    return [r - pod.milli if i in devices else r for i, r in enumerate(node.left)]


def by_measure(measure, node, pod):
    before = measure.n(node, node.cpu, node.left)
    if pod.count == 0:
        options = [[]]
    elif pod.shared:
        options = [[i] for i, r in enumerate(node.left) if r >= pod.milli]
    else:
        options = [idle_devices(node, pod.count)]
    best = None
    for devices in options:
        n = measure.n(node, node.cpu - pod.cpu, after(node, pod, devices))
        score = measure.score(before, n)
        if best is None or score > best[0]:
            best = (score, devices)
    return best


def device(policy, node, pod):
    if pod.count == 0:
        return []
    if pod.shared and policy == "spread":
        return [min((-r, i) for i, r in enumerate(node.left) if r >= pod.milli)[1]]
    if pod.shared:
        return [min((r, i) for i, r in enumerate(node.left) if r >= pod.milli)[1]]
    return idle_devices(node, pod.count)


def trunc(x):
    return int(Fraction(x))


def bestfit(node, pod):
    left, ask = sum(node.left), pod.count * pod.milli
    return trunc(100 * (1 - (Fraction(node.cpu - pod.cpu, 256000) + Fraction(left - ask, 16000))))


def dotprod(node, pod):
    left, ask = sum(node.left), pod.count * pod.milli
    dot = Fraction(node.cpu, 128000) * Fraction(pod.cpu, 128000) + \
        Fraction(left, 8000) * Fraction(ask, 8000)
    return trunc(100 * (1 - dot / 2))


def tag(pod):
    return "share-gpu" if pod.shared else "%d-gpu" % pod.count


def clustering(node, pod):
    if pod.count == 0:
        return 0
    q = 25 * (8000 - sum(node.left)) // 8000
    if tag(pod) in node.tags:
        return (75 if len(node.tags) == 1 else 50) + q
    return q if node.tags else 25 + q


def packing(node, pod):
    if pod.count == 0:
        return 0
    idle = node.left.count(1000)
    if idle == len(node.left):
        return max(33 - idle, idle)
    used = sorted((r, i) for i, r in enumerate(node.left) if r >= pod.milli)[:pod.count]
    fresh = sum(1 for r, _ in used if r == 1000)
    if fresh:
        return max(50 - fresh, 33)
    return max(100 - (sum(r for r, _ in used) * 100 // 1000) // 10, 50)


def spread(node, pod):
    left, all_milli = sum(node.left), 1000 * len(node.left)
    if pod.count == 0 or all_milli == 0:
        return 1000 * node.cpu // node.cpu_all if node.cpu_all else 0
    return trunc(Fraction((left - pod.count * pod.milli) * 1000, all_milli))


BASELINES = {"bestfit": bestfit, "dotprod": dotprod, "clustering": clustering, "packing": packing,
             "spread": spread}


def read_order(path):
    with open(path) as f:
        lines = f.read().split("\n")
    count = int(lines[0].split()[1])
    pods = lines[1:1 + count]
    nodes = int(lines[1 + count].split()[1])
    ranks = {}
    for line in lines[2 + count:2 + count + nodes]:
        rank, name = line.split("-", 1)
        ranks[name] = int(rank)
    return pods, ranks


def write_order(nodes, pods, path, seed):
    rng = random.Random(seed)
    target = 1300 * sum(len(n.left) for n in nodes)
    pods = sorted(pods, key=lambda p: p.name)
    arrivals = pods[:]
    rng.shuffle(arrivals)
    milli = sum(p.count * p.milli for p in arrivals)
    while True:
        pod = rng.choice(pods)
        if milli + pod.milli > target:
            break
        arrivals.append(pod)
        milli += pod.count * pod.milli
    names = sorted(n.name for n in nodes)
    ranks = list(range(len(names)))
    rng.shuffle(ranks)
    with open(path, "w") as f:
        f.write("pods %d req %d\n" % (len(arrivals), milli))
        f.writelines(p.name + "\n" for p in arrivals)
        f.write("nodes %d\n" % len(names))
        f.writelines("%04d-%s\n" % (r, n) for r, n in zip(ranks, names))


def replay(nodes, pods, order, policy, report):
    measure = Memo(CaFgd(pods) if policy == "ca-fgd" else Fgd(pods))
    by_name = {p.name: p for p in pods}
    values = {n: measure.n(n, n.cpu, n.left) for n in nodes}
    total = sum(values.values())
    choices, log, used = {}, [], 0
    failed = Counter()
    placed = 0

    def evaluate(node, pod):
        if not fits(node, pod):
            return None
        if policy in BASELINES:
            return BASELINES[policy](node, pod), device(policy, node, pod)
        return by_measure(measure, node, pod)

    for step, name in enumerate(order):
        pod = by_name[name]
        if pod.shape in choices:
            table, seen = choices[pod.shape]
            for node in set(log[seen:]):
                table[node] = evaluate(node, pod)
        else:
            table = {n: evaluate(n, pod) for n in nodes}
        choices[pod.shape] = (table, len(log))
        best = None
        for node in nodes:  # in rank order: the first of equal scores wins
            answer = table[node]
            if answer is not None and (best is None or answer[0] > best[0]):
                best = (answer[0], node, answer[1])
        if best is None:
            kind = "cpu_only" if pod.count == 0 else "shared" if pod.shared else \
                "one_gpu" if pod.count == 1 else "multi_gpu"
            failed[kind] += 1
            report(step, name, "", [], total)
            continue
        _, node, devices = best
        node.left = after(node, pod, devices)
        node.cpu -= pod.cpu
        node.mem -= pod.mem
        if pod.count:
            node.tags[tag(pod)] += 1
        used += pod.count * pod.milli
        placed += 1
        log.append(node)
        total -= values[node]
        values[node] = measure.n(node, node.cpu, node.left)
        total += values[node]
        report(step, name, node.name, devices, total)
    return placed, failed, used, total


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--nodes", required=True)
    ap.add_argument("--pods", required=True)
    ap.add_argument("--order", required=True)
    ap.add_argument("--policy", default="fgd", choices=["fgd", "ca-fgd", *BASELINES])
    ap.add_argument("--decisions")
    ap.add_argument("--totals", action="store_true")
    ap.add_argument("--typical", action="store_true", help="print the classes and stop")
    ap.add_argument("--limit", type=int, help="arrivals")
    ap.add_argument("--write-order", type=int, metavar="SEED")
    args = ap.parse_args()
    with open(args.pods, newline="") as f:
        pods = [Pod(r) for r in csv.DictReader(f)]
    with open(args.nodes, newline="") as f:
        nodes = [Node(r) for r in csv.DictReader(f)]
    if args.write_order is not None:
        write_order(nodes, pods, args.order, args.write_order)
        return
    order, ranks = read_order(args.order)
    for n in nodes:
        n.rank = ranks[n.name]
    nodes.sort(key=lambda n: n.rank)
    if args.typical:
        kept, total = typical(pods, args.policy == "ca-fgd")
        for c in kept:
            print("%d/%d,%d,%d,%d,%s" % (c.weight, total, c.cpu, c.milli, c.count, c.spec))
        return
    if args.limit is not None:
        order = order[:args.limit]
    crc = 0
    out = open(args.decisions, "w") if args.decisions else None
    if out:
        out.write("step,pod,node,gpus,%s\n" % ("phi_num" if args.policy == "ca-fgd" else "frag_num"))

    def report(step, pod, node, gpus, n):
        nonlocal crc
        head = "%d,%s,%s,%s" % (step, pod, node, "-".join(map(str, gpus)))
        crc = zlib.crc32((head + "\n").encode(), crc)
        if out:
            out.write("%s,%d\n" % (head, n))

    placed, failed, used, total = replay(nodes, pods, order, args.policy, report)
    if out:
        out.close()
    if args.totals:
        kinds = [failed[k] for k in ("cpu_only", "shared", "one_gpu", "multi_gpu")]
        print(",".join(map(str, [args.policy, len(order), placed, *kinds, used, total])) +
              ",%08x" % crc)


if __name__ == "__main__":
    sys.exit(main())
