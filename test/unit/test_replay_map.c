/* Tables of other traces by maps of columns. */
#include <stdio.h>

#include "replay/map.h"
#include "test/unit/replay_fixture.h"

static int read_with(const char *map, const char *text, struct rp_trace *t, struct err *err)
{
	struct rp_map m;
	int rc = rp_map_find(map, &m, err);

	rp_trace_init(t);
	if (rc == 0)
		rc = rp_trace_open(t, err);
	return rc == 0 ? rp_map_pods(&m, t, "p.csv", text, strlen(text), err) : rc;
}

static const struct rp_shape *shape_at(const struct rp_trace *t, size_t pod)
{
	cr_assert_lt(pod, t->pod_count);
	return &t->shapes[t->pods[pod]];
}

Test(replay_map, alibaba_2020)
{
	static const char text[] =
		"job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,"
		"gpu_type\n"
		"j1,worker,2.0,Terminated,1000.0,1600.0,600.0,29.296875,25.0,T4\n"
		"j1,ps,1.0,Terminated,900.0,,400.0,,,CPU\n"
		"j2,worker,1.0,Failed,2000.5,2001.0,100.0,1.0,200.0,P100\n";
	struct err err = ERR_INIT;
	struct rp_trace t;

	cr_assert_eq(read_with("alibaba-2020", text, &t, &err), 0, "%s", err.msg);
	cr_assert_eq(t.pod_count, 4);
	cr_expect_eq(shape_at(&t, 0)->milli, 250);
	cr_expect_eq(shape_at(&t, 0)->req.cpu_milli, 6000);
	cr_expect_eq(shape_at(&t, 0)->req.mem_mib, 27940); /* GB, rounded up */
	cr_expect_eq(shape_at(&t, 1)->milli, 250);
	cr_expect_eq(shape_at(&t, 2)->kind, RP_CPU_ONLY);
	cr_expect_eq(shape_at(&t, 3)->milli, 2000);
	cr_expect_eq(rp_trace_stay(&t, 0).at_ms, 100000);
	cr_expect_eq(rp_trace_stay(&t, 0).stay_ms, 600000);
	cr_expect_eq(rp_trace_stay(&t, 2).at_ms, 0);
	cr_expect_eq(rp_trace_stay(&t, 2).stay_ms, RP_TIME_UNKNOWN);
	cr_expect_eq(rp_trace_stay(&t, 3).stay_ms, 500);
	rp_trace_fini(&t);
}

Test(replay_map, helios_and_philly)
{
	static const char helios[] =
		"job_id,user,gpu_num,cpu_num,node_num,state,submit_time,duration\n"
		"1,u,16,64,2,COMPLETED,2020-04-01 00:00:10,30\n"
		"2,u,0,1,1,FAILED,2020-04-01 00:00:00,5\n";
	static const char philly[] = "jobid,num_gpus,submitted_time,start_time,end_time\n"
				     "a,20,2017-10-03T12:00:01.25Z,2017-10-03 12:00:11,2017-10-04 "
				     "12:00:11\n";
	struct err err = ERR_INIT;
	struct rp_trace t;

	cr_assert_eq(read_with("helios", helios, &t, &err), 0, "%s", err.msg);
	cr_assert_eq(t.pod_count, 3);
	cr_expect_eq(shape_at(&t, 0)->milli, 8000);
	cr_expect_eq(shape_at(&t, 0)->req.cpu_milli, 32000);
	cr_expect_eq(rp_trace_stay(&t, 1).at_ms, 10000);
	cr_expect_eq(rp_trace_stay(&t, 2).stay_ms, 5000);
	rp_trace_fini(&t);
	/* 20 GPUs: two pods of 8, one of 4. */
	cr_assert_eq(read_with("philly", philly, &t, &err), 0, "%s", err.msg);
	cr_assert_eq(t.pod_count, 3);
	cr_expect_eq(shape_at(&t, 1)->milli, 8000);
	cr_expect_eq(shape_at(&t, 2)->milli, 4000);
	cr_expect_eq(rp_trace_stay(&t, 0).at_ms, 0);
	cr_expect_eq(rp_trace_stay(&t, 0).stay_ms, 86400000);
	rp_trace_fini(&t);
}

Test(replay_map, alibaba_2025_and_2026)
{
	static const char dlrm[] = "instance_sn,role,cpu_request,gpu_request,memory_request,"
				   "creation_time,scheduled_time,deletion_time\n"
				   "i0,HN,12,1,60,5,6,16\ni1,CN,4.5,0,8,5,,\n";
	static const char jobs[] = "job_name,gpu_model,cpu_request,gpu_request,worker_num,"
				   "submit_time,duration\nj,A10,8,0.5,3,100,60\n";
	static const char nodes[] = "node_name,gpu_model,gpu_capacity_num,cpu_num\n"
				    "n0,A10,4,64\nn1,,0,96\n";
	struct err err = ERR_INIT;
	struct rp_trace t;
	struct rp_map m;

	cr_assert_eq(read_with("alibaba-2025", dlrm, &t, &err), 0, "%s", err.msg);
	cr_expect_eq(t.pod_count, 2);
	cr_expect_eq(shape_at(&t, 0)->kind, RP_ONE_GPU);
	cr_expect_eq(shape_at(&t, 1)->req.cpu_milli, 4500);
	cr_expect_eq(rp_trace_stay(&t, 0).stay_ms, 10000);
	rp_trace_fini(&t);
	cr_assert_eq(read_with("alibaba-2026", jobs, &t, &err), 0, "%s", err.msg);
	cr_expect_eq(t.pod_count, 3);
	cr_expect_eq(shape_at(&t, 2)->milli, 500);
	cr_expect_str_eq(shape_at(&t, 2)->req.product, "A10");
	cr_assert_eq(rp_map_find("alibaba-2026-nodes", &m, &err), 0);
	cr_assert_eq(rp_map_nodes(&m, &t, "n.csv", nodes, sizeof(nodes) - 1, &err), 0, "%s",
		     err.msg);
	cr_expect(t.node_count == 2 && t.nodes[0].gpu_count == 4 && t.nodes[0].cpu_milli == 64000);
	rp_trace_fini(&t);
}

Test(replay_map, bad_tables_are_refused)
{
	static const char head[] =
		"job_name,inst_num,plan_cpu,plan_mem,plan_gpu,start_time,end_time\n";
	static const struct {
		const char *row, *message;
	} rows[] = {
		{"j,1,x,1,1,1,2\n", "p.csv:2:5: field plan_cpu: \"x\" is not a number"},
		{"j,1,-1,1,1,1,2\n", "field plan_cpu: \"-1\" is not a number"},
		{"j,1,1,1,1e9,1,2\n", "field plan_gpu: \"1e9\" is not a number"},
		{"j,1,1,1,1,3,2\n", "field end_time: \"2\" is before the start"},
		{"j,999999,1,1,1,1,2\n", "field inst_num: \"999999\" is too large"},
		{"j,1,1,1,1,1\n", "p.csv:2:"},
		{"j,1,1,1,\"1\",1,2\n", "p.csv:2:"},
		{"a b,1,1,1,1,1,2\n", "field job_name"},
		{"j,100000,1,1,9000,1,2\n", "field plan_gpu: \"9000\" is too large"},
		{"j,1,1,1,9000000000,1,2\n", "field plan_gpu"},
		{"", "p.csv: no pods"},
	};
	struct err err = ERR_INIT;
	struct rp_trace t;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text), "%s%s", head, rows[i].row);
		cr_expect_lt(read_with("alibaba-2020", text, &t, &err), 0, "row %zu", i);
		cr_expect_not_null(strstr(err.msg, rows[i].message), "row %zu: %s", i, err.msg);
		rp_trace_fini(&t);
	}
	cr_expect_lt(read_with("alibaba-2020", "job_name,plan_cpu\nj,1\n", &t, &err), 0);
	rp_trace_fini(&t);
	cr_expect_lt(read_with("philly",
			       "jobid,num_gpus,submitted_time,start_time,end_time\n"
			       "a,1,2017-13-03 12:00:01,,\n",
			       &t, &err),
		     0);
	cr_expect_not_null(strstr(err.msg, "is not of the form 2017-10-03 12:00:01"), "%s",
			   err.msg);
	rp_trace_fini(&t);
}

Test(replay_map, maps_are_read_strictly)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{"", "m: neither gpus nor cpu has a column"},
		{"name = a\n", "m: neither"},
		{"gpus\n", "m:1: \"gpus\": not of the form"},
		{"# x\ncolour = a\n", "m:2: \"colour\": no such field"},
		{"gpus = a\ngpus = b\n", "m:2: \"gpus\": given twice"},
		{"gpus = \n", "m:1: \"\": no column name"},
		{"gpus = a cores\n", "m:1: \"cores\": no unit of that field"},
		{"name = a s\ngpus = b\n", "m:1: \"s\": no unit"},
		{"gpus = a\ncopies = b\nnodes = c\n", "one of copies and nodes"},
	};
	const char *text;
	struct rp_map m;
	struct err err = ERR_INIT;
	static const char good[] = "  gpus=g percent # a comment\r\n\n arrival = t date";

	cr_assert_eq(rp_map_parse("m", good, sizeof(good) - 1, &m, &err), 0, "%s", err.msg);
	cr_expect_str_eq(m.columns[RP_MAP_GPUS], "g");
	cr_expect(m.date[RP_MAP_ARRIVAL] && m.units_nano[RP_MAP_GPUS] == 10000000);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_expect_eq(rp_map_parse("m", bad[i].text, strlen(bad[i].text), &m, &err),
			     ERR_INVALID, "row %zu", i);
		cr_expect_not_null(strstr(err.msg, bad[i].message), "row %zu: %s", i, err.msg);
	}
	for (size_t i = 0; rp_map_builtin(i, &text) != NULL; i++)
		cr_expect_eq(rp_map_parse("b", text, strlen(text), &m, &err), 0, "%s", err.msg);
	cr_expect_lt(rp_map_find("/nonexistent/map", &m, &err), 0);
}
