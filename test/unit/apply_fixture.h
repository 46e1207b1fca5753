/* Plans and adjustments for the tests of apply, and what is expected of them. */
#ifndef TESSERA_TEST_APPLY_FIXTURE_H
#define TESSERA_TEST_APPLY_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/apply.h"
#include "test/lib/enforcer_fixture.h"
#include "test/lib/oom.h"

#define GPU(i) "GPU-0000000" #i "-0000-4000-8000-000000000000"
#define CDI "k8s.device-plugin.nvidia.com/gpu="
#define DEVICES(c) "nvidia.com/container." c ".gpus.devices"
#define REQUEST(c) "nvidia.com/container." c ".gpu-memory.request"
#define LIMIT(c) "nvidia.com/container." c ".gpu-memory.limit"
#define MODE(c) "nvidia.com/container." c ".gpu-compute.mode"
#define ALLOCATION "tessera.dev/allocation"
#define TIME ST_MODE_TIME_SLICING
#define SHARING ST_MODE_SM_SHARING

static const char gpu_0[] = GPU(0), gpu_1[] = GPU(1);
static const char sees_gpu_0[] = "NVIDIA_VISIBLE_DEVICES=" GPU(0);

static const struct en_apply_options plain = {
	.hook_path = "/opt/tessera/bin/tessera-hook",
	.hook_socket = "/run/tessera/hook.sock",
	.clients_max = 48,
};

static inline struct en_plan plan_with(const struct ef_node *n, const struct ef_pod *p,
				       const char *container, const struct en_apply_options *opt)
{
	struct err err = ERR_INIT;
	struct en_plan plan;

	cr_assert_eq(en_plan_make(&n->node, &p->spec, container, opt, &plan, &err), 0, "%s",
		     err.msg);
	cr_expect((plan.verdict == EN_REFUSE) <= (plan.why[0] != '\0'));
	return plan;
}

static inline struct en_plan plan_of(const struct ef_node *n, const struct ef_pod *p,
				     const char *container)
{
	return plan_with(n, p, container, &plain);
}

static inline void expect_refused(const struct ef_node *n, const struct ef_pod *p,
				  const char *container, const char *why)
{
	struct en_apply_options open = plain;
	struct en_plan plan = plan_of(n, p, container);
	char all[ERR_MSG_CAP];

	snprintf(all, sizeof(all), "container \"%s\" of pod ns/%s: %s", container, p->spec.name,
		 why);
	cr_expect_eq(plan.verdict, EN_REFUSE, "%s", why);
	cr_expect_str_eq(plan.why, all);
	open.fail_open = true;
	plan = plan_with(n, p, container, &open);
	cr_expect_eq(plan.verdict, EN_LEAVE);
	cr_expect_str_eq(plan.why, all);
}

/* The adjustment of a plan for a container with that environment ("K=V", NULL ends). */
static inline struct en_adjust adjust_with(const struct ef_node *n, const struct en_plan *plan,
					   const struct en_apply_options *opt,
					   const char *const *env)
{
	struct en_container_seen seen = {.name = "main", .env = {0, env}};
	struct err err = ERR_INIT;
	struct en_adjust a;

	while (env != NULL && env[seen.env.count] != NULL)
		seen.env.count++;
	cr_assert_eq(en_adjust_make(&n->node, plan, &seen, opt, &a, &err), 0, "%s", err.msg);
	return a;
}

static inline void expect_env(const struct en_adjust *a, const char *const *want)
{
	size_t count = 0;

	for (; want[2 * count] != NULL; count++) {
		const char *have = ef_env(a, want[2 * count]);

		cr_expect(have != NULL && strcmp(have, want[2 * count + 1]) == 0, "%s=%s, not %s",
			  want[2 * count], have != NULL ? have : "(unset)", want[2 * count + 1]);
	}
	cr_expect_eq(a->env_count, count);
}

#endif
