/* Annotations and resources to a request, and hostile allocations to a decision.
 *
 * Input: one byte of options (bit 0 HAMi names, bit 1 CDI, bit 2 the node with MIG), then lines:
 *	+name -name *name	a container, init container, sidecar
 *	.resource=quantity	of the last container
 *	key=value		an annotation; in tessera.dev/allocation a digest "*" becomes the right
 *				one, so that what is behind the digest is reached
 * Nothing may crash; a request keeps its bounds and can be written and read again; what is read as
 * a complete allocation is written exactly as it stood there. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/cluster.h"
#include "state/contract.h"
#include "state/contract_internal.h"

#define ANNOTATIONS_MAX 64
#define CONTAINERS_MAX 16
#define RESOURCES_MAX 64
#define MEM_MIB 81920

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	struct st_pod_spec pod;
	struct st_contract_options opt;
	uint32_t node;
	struct st_kv annotations[ANNOTATIONS_MAX];
	struct st_container_spec containers[CONTAINERS_MAX];
	struct st_kv resources[RESOURCES_MAX];
	size_t resource_count;
	char allocation[1024]; /* with its digest put in */
};

static void require(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "broken: %s\n", what);
		abort();
	}
}

static struct st_cluster *cluster(void)
{
	static struct st_cluster *c;
	struct st_gpu_spec gpus[ST_GPUS_MAX];
	char uuids[ST_GPUS_MAX][8];
	struct st_node_spec node = {
		.product = "NVIDIA A100-SXM4-80GB", .gpu_count = ST_GPUS_MAX, .gpus = gpus};

	if (c != NULL)
		return c;
	c = st_cluster_new(NULL);
	require(c != NULL, "memory");
	for (int n = 0; n < 2; n++) {
		memset(gpus, 0, sizeof(gpus));
		for (int g = 0; g < ST_GPUS_MAX; g++) {
			snprintf(uuids[g], sizeof(uuids[g]), "GPU-%d%c", n, 'a' + g);
			gpus[g] = (struct st_gpu_spec){
				.uuid = uuids[g], .mem_mib = MEM_MIB, .mig_enabled = n == 1};
		}
		node.name = n == 0 ? "n" : "m";
		require(st_cluster_node_put(c, &node, NULL, NULL) == 0, "node");
	}
	return c;
}

static void add_line(struct input *in, char *line)
{
	struct st_pod_spec *pod = &in->pod;
	char *equals = strchr(line, '=');

	if (line[0] == '+' || line[0] == '-' || line[0] == '*') {
		if (pod->container_count == CONTAINERS_MAX)
			return;
		in->containers[pod->container_count++] = (struct st_container_spec){
			.name = line + 1,
			.init = line[0] != '+',
			.sidecar = line[0] == '*',
			.resources = in->resources + in->resource_count,
		};
		return;
	}
	if (equals == NULL)
		return;
	*equals = '\0';
	if (line[0] == '.' && pod->container_count > 0 && in->resource_count < RESOURCES_MAX) {
		in->resources[in->resource_count++] = (struct st_kv){line + 1, equals + 1};
		in->containers[pod->container_count - 1].resource_count++;
	} else if (line[0] != '.' && pod->annotation_count < ANNOTATIONS_MAX) {
		in->annotations[pod->annotation_count++] = (struct st_kv){line, equals + 1};
	}
}

/* The pairs that an allocation's list names, as far as they are there. */
static size_t covered(const struct input *in, const char *list, struct st_kv *kv)
{
	size_t count = 0;

	while (*list != '\0') {
		size_t len = strcspn(list, ","), ref_len = strcspn(list, "=,");
		char ref[ST_CONTAINER_CAP], key[CONTRACT_KEY_CAP];

		if (ref_len < sizeof(ref)) {
			memcpy(ref, list, ref_len);
			ref[ref_len] = '\0';
			for (size_t i = ref_len + 1; i < len && count < ANNOTATIONS_MAX; i++) {
				const struct st_kv *found = NULL;

				for (int f = 0; f < CONTRACT_WRITTEN_COUNT; f++) {
					if (contract_fields[f].letter == list[i] &&
					    contract_key_format(&in->opt, (enum contract_field)f,
								ref, key, NULL) == 0)
						found = contract_find(&in->pod, key);
				}
				if (found != NULL)
					kv[count++] = *found;
			}
		}
		list += len + (list[len] == ',');
	}
	return count;
}

static void sign(struct input *in)
{
	struct st_kv kv[ANNOTATIONS_MAX];
	char digest[CONTRACT_DIGEST_LEN + 1];
	struct st_kv *a = NULL;
	const char *node, *list;
	size_t count;

	for (size_t i = 0; i < in->pod.annotation_count; i++) {
		if (strcmp(in->annotations[i].key, CONTRACT_ALLOCATION) == 0)
			a = &in->annotations[i];
	}
	if (a == NULL || strncmp(a->value, "v1;", 3) != 0)
		return;
	list = strstr(a->value, ";*;");
	if (list == NULL)
		return;
	list += 3;
	node = in->node == 0 ? "n" : "m";
	count = covered(in, list, kv);
	contract_digest(node, list, strlen(list), kv, count, digest);
	snprintf(in->allocation, sizeof(in->allocation), "v1;%s;%s;%s", node, digest, list);
	a->value = in->allocation;
}

static void check_item(const struct st_item *it)
{
	const char *known = "known mode";

	require(it->count >= 1 && it->count <= ST_GPUS_MAX, "count");
	require(it->container[0] != '\0', "container");
	if (it->kind != ST_KIND_SHARE) {
		require(it->mode == (it->kind == ST_KIND_MIG ? ST_MODE_MIG : ST_MODE_EXCLUSIVE),
			known);
		require(it->request_mib == 0 && it->request_nano == 0, "no share");
		require((it->profile[0] != '\0') == (it->kind == ST_KIND_MIG), "profile");
		return;
	}
	require(it->mode == ST_MODE_TIME_SLICING || it->mode == ST_MODE_SM_SHARING, known);
	require((it->request_mib > 0) != (it->request_nano > 0), "one request");
	require(it->request_nano <= ST_NANO && it->limit_nano <= ST_NANO, "a GPU at most");
	require(it->compute_nano >= 0 && it->compute_nano <= ST_NANO, "compute");
	require(st_item_request_mib(it, MEM_MIB) >= 1, "something is booked");
	require(st_item_limit_mib(it, MEM_MIB) >= st_item_request_mib(it, MEM_MIB), "limit");
}

/* A decision for the request, whatever else is on the node. */
static void decide(const struct st_request *req, struct st_decision *d)
{
	memset(d, 0, sizeof(*d));
	for (int i = 0; i < req->item_count; i++) {
		const struct st_item *it = &req->items[i];
		struct st_grant *g = &d->grants[d->grant_count++];

		memcpy(g->container, it->container, sizeof(g->container));
		memcpy(g->profile, it->profile, sizeof(g->profile));
		g->kind = it->kind;
		g->mode = it->mode;
		g->count = it->count;
		for (uint8_t k = 0; k < it->count; k++)
			g->gpu[k] = k;
		if (it->kind != ST_KIND_MIG) {
			g->request_mib = it->kind == ST_KIND_WHOLE
						 ? MEM_MIB
						 : st_item_request_mib(it, MEM_MIB);
			g->limit_mib = it->kind == ST_KIND_WHOLE ? MEM_MIB
								 : st_item_limit_mib(it, MEM_MIB);
			g->compute_nano = it->compute_nano;
		}
	}
}

static void check_request(struct input *in, const struct st_request *req)
{
	struct st_pod_spec bare = in->pod;
	struct st_annotations a = {0};
	enum st_allocation_kind kind;
	struct st_decision d, got;
	bool mig = false;

	require(req->item_count <= ST_ITEMS_MAX, "items");
	for (int i = 0; i < req->item_count; i++) {
		check_item(&req->items[i]);
		mig = mig || req->items[i].kind == ST_KIND_MIG;
	}
	decide(req, &d);
	require(st_contract_encode(cluster(), &d, &in->opt, &a, NULL) == 0, "can be written");
	bare.annotations = a.kv;
	bare.annotation_count = a.count;
	if (!mig) {
		require(st_contract_decode(cluster(), &bare, 0, &in->opt, &kind, &got, NULL) == 0,
			"can be read");
		/* Both were zero before. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
		require(memcmp(&got, &d, sizeof(d)) == 0, "read as written");
	}
	st_annotations_fini(&a);
}

/* What was read must be what we would write. Each container may have CDI names or plain ones. */
static void check_decision(const struct input *in, const struct st_decision *d)
{
	struct st_contract_options opt[2] = {in->opt, in->opt};
	struct st_annotations a[2] = {{0}, {0}};
	bool all[2] = {true, true};

	for (int cdi = 0; cdi < 2; cdi++) {
		opt[cdi].cdi = cdi == 1;
		require(st_contract_encode(cluster(), d, &opt[cdi], &a[cdi], NULL) == 0, "written");
	}
	for (size_t i = 0; i < a[0].count; i++) {
		const struct st_kv *kv = contract_find(&in->pod, a[0].kv[i].key);
		bool last = i + 1 == a[0].count; /* tessera.dev/allocation, with the digest */
		bool same[2];

		require(kv != NULL, "the same keys");
		for (int cdi = 0; cdi < 2; cdi++) {
			same[cdi] = strcmp(kv->value, a[cdi].kv[i].value) == 0;
			require(!last || !all[cdi] || same[cdi], "the same digest");
			all[cdi] = all[cdi] && same[cdi];
		}
		require(last || same[0] || same[1], "the same values");
	}
	st_annotations_fini(&a[0]);
	st_annotations_fini(&a[1]);
}

static void run(struct input *in)
{
	enum st_allocation_kind kind = ST_ALLOCATION_NONE;
	struct st_warnings warn;
	struct st_request req;
	struct st_decision d;
	struct err err = ERR_INIT;
	int r = st_contract_parse(&in->pod, &in->opt, &req, &warn, &err);

	require(r == 0 || r == ERR_INVALID || r == ERR_RANGE, "code of parse");
	require((r == 0) == (err.msg[0] == '\0'), "message of parse");
	require(warn.count <= ST_WARNINGS_MAX, "warnings");
	if (r == 0)
		check_request(in, &req);
	err.msg[0] = '\0';
	r = st_contract_decode(cluster(), &in->pod, in->node, &in->opt, &kind, &d, &err);
	require(r == 0 || r == ERR_INVALID, "code of decode");
	require((r == 0) == (err.msg[0] == '\0'), "message of decode");
	if (r == 0 && kind == ST_ALLOCATION_COMPLETE)
		check_decision(in, &d);
	st_contract_plugin_gpus(&in->pod);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input *in = calloc(1, sizeof(*in));
	char *text = malloc(size + 1), *line, *next;

	require(in != NULL && text != NULL, "memory");
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	in->opt.hami = (text[0] & 1) != 0;
	in->opt.cdi = (text[0] & 2) != 0;
	in->node = (text[0] & 4) != 0;
	in->pod = (struct st_pod_spec){.uid = "u",
				       .ns = "ns",
				       .name = "p",
				       .node = "",
				       .annotations = in->annotations,
				       .containers = in->containers};
	for (line = text + (size > 0); line != NULL && *line != '\0'; line = next) {
		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		add_line(in, line);
	}
	sign(in);
	run(in);
	free(text);
	free(in);
	return 0;
}
