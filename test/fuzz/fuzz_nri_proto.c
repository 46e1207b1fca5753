/* NRI messages as a runtime might send them, read and carried through the whole decision. The first byte
 * of the input chooses the method, the rest is its protobuf message. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/nri.pb-c.h"
#include "enforcer/nri_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond)                                                                              \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static const char *const methods[] = {"CreateContainer", "StateChange",
				      "Synchronize",     "ValidateContainerAdjustment",
				      "Configure",       "StartContainer",
				      "StopContainer",   "RemoveContainer",
				      "Shutdown",        "PostStartContainer"};

/* The node of the corpus: "n", two GPUs as test/lib/enforcer_fixture.c names them. */
static struct en_node_gpu gpus[2];
static struct en_node node = {.name = "n",
			      .gpu_count = 2,
			      .gpus = gpus,
			      .mps_ready = true,
			      .mps_v3 = true,
			      .memory_limits = true};
static const struct en_apply_options options = {.hook_path = "/opt/hook",
						.hook_socket = "/run/hook.sock"};

static void node_init(void)
{
	for (size_t i = 0; i < 2; i++) {
		snprintf(gpus[i].uuid, sizeof(gpus[i].uuid),
			 "GPU-%08zu-0000-4000-8000-000000000000", i);
		gpus[i].mem_mib = 10000;
		gpus[i].product = "NVIDIA A100-SXM4-80GB";
	}
}

/* What goes out must come in again. */
static void expect_readable(const struct en_adjust *a)
{
	En__Nri__CreateContainerResponse *r;
	struct buf b = BUF_INIT;

	REQUIRE(en_nri_put_create(&b, a, NULL) == 0);
	r = en__nri__create_container_response__unpack(NULL, b.len, (const uint8_t *)b.data);
	REQUIRE(r != NULL);
	REQUIRE((r->adjust != NULL) == (a->env_count > 0));
	en__nri__create_container_response__free_unpacked(r, NULL);
	buf_fini(&b);
}

static void decide(const struct en_nri_request *r, const struct st_pod_spec *pod,
		   const struct en_nri_container *c)
{
	struct err err = ERR_INIT;
	struct en_plan plan;
	struct en_adjust a;
	int rc;

	REQUIRE(en_plan_make(&node, pod, c->seen.name, &options, &plan, &err) == 0);
	REQUIRE(plan.verdict != EN_REFUSE || plan.why[0] != '\0');
	if (plan.verdict == EN_GIVE) {
		REQUIRE(plan.grant.count > 0 && plan.grant.gpu[0] < 2);
		REQUIRE(plan.grant.kind != ST_KIND_SHARE ||
			(plan.grant.request_mib > 0 &&
			 plan.grant.request_mib <= plan.grant.limit_mib &&
			 plan.grant.limit_mib <= 10000));
	}
	rc = en_adjust_make(&node, &plan, &c->seen, &options, &a, &err);
	REQUIRE(rc == 0 || rc == ERR_CONFLICT);
	if (rc != 0)
		return;
	REQUIRE((plan.verdict == EN_GIVE || plan.verdict == EN_HIDE) == (a.env_count > 0));
	expect_readable(&a);
	(void)en_adjust_check_container(&a, &c->seen, &err);
	(void)en_adjust_check_merged(&a, &r->merged, &err);
	en_adjust_fini(&a);
}

/* Touches all that was read, and decides for each container with each pod. */
static void look_at(const struct en_nri_request *r)
{
	size_t seen = 0;

	for (size_t i = 0; i < r->pod_count; i++) {
		const struct st_pod_spec *p = &r->pods[i].spec;

		seen += strlen(p->uid) + strlen(p->ns) + strlen(p->name) + strlen(r->pods[i].id);
		for (size_t k = 0; k < p->annotation_count; k++)
			seen += strlen(p->annotations[k].key) + strlen(p->annotations[k].value);
	}
	for (size_t i = 0; i < r->container_count; i++) {
		const struct en_nri_container *c = &r->containers[i];

		seen += strlen(c->id) + strlen(c->pod_id) + strlen(c->cgroups_path);
		for (size_t k = 0; k < c->seen.env.count; k++)
			seen += strlen(c->seen.env.text[k]);
		for (size_t k = 0; k < c->seen.mount_count; k++)
			seen += strlen(c->seen.mounts[k].source) + strlen(c->seen.mounts[k].target);
		for (size_t k = 0; k < r->pod_count && i < 4 && k < 4; k++)
			decide(r, &r->pods[k].spec, c);
	}
	REQUIRE(seen < (size_t)64 << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct en_ttrpc_call call = {.stream = 1, .service = EN_NRI_PLUGIN_SERVICE};
	struct en_nri_request *r = NULL;
	struct err err = ERR_INIT;
	uint8_t *exact;
	int rc;

	if (size < 1)
		return 0;
	node_init();
	exact = malloc(size); /* a read past the end is seen */
	REQUIRE(exact != NULL);
	memcpy(exact, data + 1, size - 1);
	call.method = methods[data[0] % (sizeof(methods) / sizeof(methods[0]))];
	call.payload = exact;
	call.len = size - 1;
	rc = en_nri_request_read(&call, &r, &err);
	free(exact); /* nothing points into it */
	REQUIRE(rc == 0 || rc == ERR_INVALID || rc == ERR_NOMEM);
	REQUIRE((rc == 0) == (err.msg[0] == '\0') && (rc == 0) == (r != NULL));
	if (rc == 0)
		look_at(r);
	en_nri_request_free(r);
	return 0;
}
