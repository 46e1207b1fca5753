/* What containers use, from the fake driver and a made-up /proc. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/measure.h"
#include "test/lib/hardware.h"

#define NOW 1000000

struct bench {
	struct hardware h;
	struct en_prober *prober;
	struct en_probe probe;
	struct en_measurer *m;
	char proc[80];
	struct en_holding rows[3];
	const struct en_holding *list[3];
	size_t count;
};

static void script(struct bench *b, const char *more)
{
	struct err err = ERR_INIT;

	hardware_nvml(&b->h, "driver 615.71.09\n" HARDWARE_GPU(0, "") HARDWARE_GPU(1, "") "%s",
		      more);
	cr_assert_eq(en_prober_run(b->prober, &b->probe, &err), 0, "%s", err.msg);
	cr_assert(b->probe.driver_ok, "%s", b->probe.why.msg);
}

static void process(const struct bench *b, int pid, const char *container)
{
	char path[64];

	snprintf(path, sizeof(path), "proc/%d/cgroup", pid);
	hardware_file(&b->h, path, "0::/kubepods/pod1/%s\n", container);
	snprintf(path, sizeof(path), "proc/%d/stat", pid);
	/* Field 22: started 500 s after the boot, at 100 ticks a second. */
	hardware_file(&b->h, path, "%d (a ) b) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 50000 1 1\n",
		      pid);
}

static void holding(struct bench *b, const char *id, uint32_t pid, int32_t request, int32_t limit,
		    int32_t compute_nano)
{
	struct en_holding *h = &b->rows[b->count];

	*h = (struct en_holding){.id = id,
				 .pod_id = "s",
				 .pod_uid = "u",
				 .ns = "ns",
				 .pod = "p",
				 .container = "main",
				 .pid = pid,
				 .grant = {.kind = ST_KIND_SHARE,
					   .mode = ST_MODE_SM_SHARING,
					   .count = 1,
					   .request_mib = request,
					   .limit_mib = limit,
					   .compute_nano = compute_nano}};
	snprintf(h->gpus[0], sizeof(h->gpus[0]), "GPU-0");
	b->list[b->count++] = h;
}

static void start(struct bench *b)
{
	struct en_probe_options po = {.library = NULL};
	struct en_measure_options mo = {.proc = b->proc};
	struct err err = ERR_INIT;

	memset(b, 0, sizeof(*b));
	hardware_init(&b->h);
	po.library = b->h.library;
	snprintf(b->proc, sizeof(b->proc), "%s/proc", b->h.dir);
	hardware_file(&b->h, "proc/uptime", "900.50 100.00\n");
	cr_assert_eq(en_prober_new(&po, &b->prober, &err), 0, "%s", err.msg);
	b->m = en_measurer_new(&mo);
	cr_assert_not_null(b->m);
}

static void finish(struct bench *b)
{
	en_measurer_free(b->m);
	en_prober_free(b->prober);
	hardware_fini(&b->h);
}

/* Samples and returns the rows, the caller's. */
static struct en_measured *sample(struct bench *b, size_t want)
{
	struct en_measured *rows = NULL;
	struct err err = ERR_INIT;
	size_t count = 0;

	cr_assert_eq(en_measurer_run(b->m, en_prober_nvml(b->prober), &b->probe, b->list, b->count,
				     false, NOW, &err),
		     0, "%s", err.msg);
	cr_assert_eq(en_measurer_rows(b->m, &rows, &count, &err), 0);
	cr_assert_eq(count, want);
	return rows;
}

Test(enforcer_measure, memory_and_use_by_container)
{
	struct en_measured *r;
	struct bench b;

	start(&b);
	process(&b, 11, "c1");
	process(&b, 12, "c1");
	process(&b, 21, "c2");
	process(&b, 31, "somebody");
	script(&b, "process gpu=0 pid=11 kind=mps mem=512\nprocess gpu=0 pid=12 kind=mps mem=256\n"
		   "process gpu=0 pid=21 kind=compute mem=100\n"
		   "process gpu=0 pid=31 kind=compute mem=9000\n"
		   "sample gpu=0 pid=11 sm=10 time=1000\nsample gpu=0 pid=11 sm=20 time=2000\n"
		   "sample gpu=0 pid=12 sm=5 time=2000\nsample gpu=0 pid=31 sm=50 time=2000\n");
	holding(&b, "c1", 11, 8192, 16384, 250000000);
	holding(&b, "c2", 21, 8192, 8192, 0);
	r = sample(&b, 2);
	cr_expect_eq(r[0].used_mib, 768);
	cr_expect_eq(r[0].sm_percent, 20, "15 + 5");
	cr_expect_eq(r[0].sm_normal, 80, "of a quarter of the GPU");
	cr_expect_eq(r[0].process_count, 2);
	cr_expect_eq(r[0].started_s, NOW - 400);
	cr_expect_eq(r[0].gpu_mib, 81920);
	cr_expect_eq(r[1].used_mib, 100);
	cr_expect_eq(r[1].sm_percent, 0);
	cr_expect_eq(r[1].sm_normal, 0);
	free(r);

	/* Old samples are not counted again; a stopped container's row goes. */
	b.rows[1].stopped = true;
	r = sample(&b, 1);
	cr_expect_eq(r[0].sm_percent, 0);
	cr_expect_eq(r[0].used_mib, 768);
	free(r);
	finish(&b);
}

Test(enforcer_measure, limit_hits_and_evictions)
{
	struct en_measured *r;
	struct bench b;

	start(&b);
	process(&b, 11, "c1");
	process(&b, 12, "c1");
	holding(&b, "c1", 11, 1000, 2000, 0);
	script(&b, "process gpu=0 pid=11 kind=mps mem=900\n");
	free(sample(&b, 1));
	script(&b, "process gpu=0 pid=11 kind=mps mem=1990\n");
	free(sample(&b, 1));
	r = sample(&b, 1);
	cr_expect_eq(r[0].limit_hits, 1, "it stays there: once");
	cr_expect_eq(r[0].evictions, 0);
	free(r);
	/* One process loses its context and lives on; the other stays. */
	script(&b,
	       "process gpu=0 pid=11 kind=mps mem=500\nprocess gpu=0 pid=12 kind=mps mem=900\n");
	free(sample(&b, 1));
	script(&b, "process gpu=0 pid=11 kind=mps mem=500\n");
	r = sample(&b, 1);
	cr_expect_eq(r[0].evictions, 1);
	cr_expect_eq(r[0].used_mib, 500);
	free(r);
	/* Within what it is guaranteed a process that goes is no eviction; nor is one that ended. */
	script(&b, "");
	free(sample(&b, 1));
	script(&b, "process gpu=0 pid=12 kind=mps mem=1500\n");
	free(sample(&b, 1));
	hardware_remove(&b.h, "proc/12");
	script(&b, "");
	r = sample(&b, 1);
	cr_expect_eq(r[0].evictions, 1);
	cr_expect_eq(r[0].limit_hits, 1);
	free(r);
	finish(&b);
}

/* Without the driver nothing is known, and nothing is forgotten. */
Test(enforcer_measure, no_driver)
{
	struct en_measured *r;
	struct en_measured *rows = NULL;
	size_t count;
	struct bench b;

	start(&b);
	process(&b, 11, "c1");
	holding(&b, "c1", 11, 1000, 2000, 0);
	script(&b, "process gpu=0 pid=11 kind=mps mem=1995\n");
	free(sample(&b, 1));
	cr_assert_eq(en_measurer_run(b.m, NULL, &b.probe, b.list, b.count, false, NOW, NULL), 0);
	cr_assert_eq(en_measurer_rows(b.m, &rows, &count, NULL), 0);
	cr_assert_eq(count, 1);
	cr_expect_eq(rows[0].used_mib, -1);
	cr_expect_eq(rows[0].sm_percent, -1);
	cr_expect_eq(rows[0].limit_hits, 1);
	cr_expect_eq(rows[0].evictions, 0);
	free(rows);
	r = sample(&b, 1);
	cr_expect_eq(r[0].used_mib, 1995);
	free(r);
	finish(&b);
}

Test(enforcer_measure, normal_form)
{
	cr_expect_eq(en_measure_normal(-1, 0, 1, 1), -1);
	cr_expect_eq(en_measure_normal(20, 0, 20480, 81920), 80);
	cr_expect_eq(en_measure_normal(20, 500000000, 20480, 81920), 40, "compute goes first");
	cr_expect_eq(en_measure_normal(90, 0, 20480, 81920), 100);
	cr_expect_eq(en_measure_normal(33, 0, 0, 81920), 33, "a whole GPU");
}
