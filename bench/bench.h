/* Shared by the benchmarks: clocks, percentiles, counting allocations, and a pod mix. */
#ifndef TESSERA_BENCH_H
#define TESSERA_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "policy/policy.h"

double bench_cpu_s(void);            /* CPU seconds of this process */
int64_t bench_now_ns(void);          /* monotonic */
double bench_process_cpu_s(int pid); /* of another one; < 0: it cannot be read */
long bench_peak_kib(void);           /* largest resident size so far */
uint64_t bench_allocs(void);         /* calls of malloc, calloc and realloc so far */

/* Sorts v and prints "<label> p50 ... p99 ... max ... us". */
void bench_print_ns(const char *label, int64_t *v, size_t n);
/* The q-permille percentile of sorted v. */
int64_t bench_percentile(const int64_t *v, size_t n, int permille);

/* A pod of a mix after the published figures of the openb trace: 13 % without GPU, 38 % shares
 * (most of 810, 470, 320 and 650 milli), 48 % one GPU, 1 % of 2, 4 or 8 GPUs; some 150 shapes.
 * device_mib is the memory that stands for a whole device in shares. */
void bench_mix_next(struct rng *r, int32_t device_mib, struct st_request *ret);

/* node_count nodes of gpu_count GPUs with device_mib each; NULL and a message when it fails. */
struct st_cluster *bench_cluster(uint32_t node_count, unsigned gpu_count, int32_t device_mib);

/* Places one pod under the number as UID: the node, or ST_NONE. */
uint32_t bench_place(struct st_cluster *c, struct po_placer *p, const struct st_request *req,
		     uint64_t number);
void bench_release(struct st_cluster *c, uint64_t number);

#endif
