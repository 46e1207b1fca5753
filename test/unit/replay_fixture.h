/* Traces from text, for the tests of replay/. */
#ifndef TESSERA_TEST_REPLAY_FIXTURE_H
#define TESSERA_TEST_REPLAY_FIXTURE_H

#include <criterion/criterion.h>
#include <string.h>

#include "replay/openb.h"
#include "replay/order.h"
#include "replay/trace.h"

#define NODES_HEAD "sn,cpu_milli,memory_mib,gpu,model\n"
#define PODS_HEAD "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"

static inline void trace_of(struct rp_trace *t, const char *nodes, const char *pods)
{
	struct err err = ERR_INIT;

	rp_trace_init(t);
	cr_assert_eq(rp_trace_open(t, &err), 0);
	cr_assert_eq(rp_openb_nodes(t, "n.csv", nodes, strlen(nodes), &err), 0, "%s", err.msg);
	cr_assert_eq(rp_openb_pods(t, "p.csv", pods, strlen(pods), &err), 0, "%s", err.msg);
}

/* Three kinds of nodes, five kinds of pods; 20 GPUs, 6,910 milli asked for. */
static const char small_nodes[] = NODES_HEAD "a,96000,400000,8,G2\n"
					     "b,104000,400000,2,T4\n"
					     "c,96000,400000,8,G2\n"
					     "d,16000,60000,2,P100\n"
					     "e,32000,100000,0,\n";
static const char small_pods[] = PODS_HEAD "p0,4000,8000,1,500,\n"
					   "p1,8000,16000,1,1000,\n"
					   "p2,2000,4000,0,0,\n"
					   "p3,16000,64000,4,1000,G2|A10\n"
					   "p4,3000,4000,1,810,\n"
					   "p5,6000,4000,1,600,T4\n";

#endif
