/* The extender on a fake API server with two nodes: "n1" with one GPU of 40960 MiB, "n2" with two. */
#ifndef TESSERA_TEST_TWO_NODES_FIXTURE_H
#define TESSERA_TEST_TWO_NODES_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/lib/api_fixture.h"

#define G10 "\"gpu-memory\":\"10240\""
#define ALL "\"gpu-memory\":\"40960\""
#define BINDING "/api/v1/namespaces/ns/pods/%s/binding"

static struct xa x;

static inline void init(void)
{
	xa_init(&x);
	fake_cluster_node(x.c, "n1", 1, 40960);
	fake_cluster_node(x.c, "n2", 2, 40960);
}

static inline void fini(void)
{
	xa_fini(&x);
}

static inline void open_ready(void)
{
	xa_open(&x, true);
}

static inline unsigned posts(const char *pod)
{
	char path[200];

	snprintf(path, sizeof(path), BINDING, pod);
	return fake_api_count(fake_cluster_api(x.c), "POST", path);
}

static inline void expect_bound(const char *pod, const char *uid, const char *node)
{
	const char *error = xa_bind(&x, pod, uid, node);

	cr_expect_str_eq(error, "", "%s: %s", pod, error);
	cr_expect_str_eq(fake_cluster_node_of(x.c, pod), node);
}

#endif
