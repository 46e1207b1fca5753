/* Bodies that real schedulers sent (captures/), in their order: each gets a legal answer, the same
 * whether the handlers are called or a live server is asked. Legal is what kube-scheduler accepts. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/lib/extender_fixture.h"

#define CAPTURES "test/golden/captures"
#define NODE_136 "gpu-node-0000%d.cluster.example.internal"

/* ---- what the scheduler accepts ---- */

static const cJSON *get(const cJSON *obj, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(obj, name);
}

static cJSON *parse(const char *text)
{
	struct err err = ERR_INIT;
	cJSON *tree = NULL;

	cr_assert_eq(ku_json_parse(text, strlen(text), &tree, &err), 0, "%s: %.200s", err.msg,
		     text);
	return tree;
}

/* The names asked about. */
static void asked_names(const cJSON *request, struct buf *b)
{
	const cJSON *v;

	cJSON_ArrayForEach(v, get(request, "NodeNames")) buf_printf(b, "<%s>", v->valuestring);
	cJSON_ArrayForEach(v, get(get(request, "Nodes"), "items"))
		buf_printf(b, "<%s>", get(get(v, "metadata"), "name")->valuestring);
}

static bool was_asked(struct buf *asked, const char *name)
{
	char key[300];

	snprintf(key, sizeof(key), "<%s>", name);
	return strstr(buf_str(asked), key) != NULL;
}

/* How often the reply speaks of a node; failures need a reason. */
static int count_failed(const cJSON *map, const char *name)
{
	const cJSON *reason = get(map, name);

	cr_assert(cJSON_IsObject(map));
	cr_expect(reason == NULL || (cJSON_IsString(reason) && reason->valuestring[0] != '\0'));
	return reason != NULL;
}

static int count_passing(const cJSON *reply, bool nodes, const char *name)
{
	const cJSON *v, *list = nodes ? get(get(reply, "Nodes"), "items") : get(reply, "NodeNames");
	int n = 0;

	cr_assert(cJSON_IsArray(list));
	cr_expect(cJSON_IsNull(get(reply, nodes ? "NodeNames" : "Nodes")));
	cJSON_ArrayForEach(v, list) n +=
		strcmp(nodes ? get(get(v, "metadata"), "name")->valuestring : v->valuestring,
		       name) == 0;
	return n;
}

static void expect_filter(const cJSON *request, const cJSON *reply)
{
	bool nodes = cJSON_IsObject(get(request, "Nodes"));
	struct buf asked = BUF_INIT;
	char name[256];

	cr_expect_str_eq(get(reply, "Error")->valuestring, "");
	asked_names(request, &asked);
	for (const char *p = buf_str(&asked); *p == '<'; p += strlen(name) + 2) {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 1, ">"), p + 1);
		cr_expect_eq(count_passing(reply, nodes, name) +
				     count_failed(get(reply, "FailedNodes"), name) +
				     count_failed(get(reply, "FailedAndUnresolvableNodes"), name),
			     1, "%s", name);
	}
	buf_fini(&asked);
}

static void expect_prioritize(const cJSON *request, const cJSON *reply)
{
	struct buf asked = BUF_INIT;
	const cJSON *v, *score;
	int best = 0, entries = 0;

	cr_assert(cJSON_IsArray(reply));
	asked_names(request, &asked);
	cJSON_ArrayForEach(v, reply)
	{
		score = get(v, "Score");
		cr_expect(was_asked(&asked, get(v, "Host")->valuestring));
		cr_expect(cJSON_IsNumber(score) && score->valuedouble == (int)score->valuedouble);
		best += score->valuedouble == 10;
		entries++;
	}
	cr_expect_eq(best, entries > 0);
	buf_fini(&asked);
}

static void expect_preempt(const cJSON *request, const cJSON *reply)
{
	const cJSON *proposed = get(request, "NodeNameToMetaVictims"), *node, *pod;

	if (!cJSON_IsObject(proposed))
		proposed = get(request, "NodeNameToVictims");
	cJSON_ArrayForEach(node, get(reply, "NodeNameToMetaVictims"))
	{
		cr_expect_not_null(get(proposed, node->string));
		cr_expect_gt(cJSON_GetArraySize(get(node, "Pods")), 0);
		cr_expect(cJSON_IsNumber(get(node, "NumPDBViolations")));
		cJSON_ArrayForEach(pod, get(node, "Pods"))
			cr_expect(cJSON_IsString(get(pod, "UID")));
	}
	cr_expect_gt(cJSON_GetArraySize(get(reply, "NodeNameToMetaVictims")), 0);
}

static void expect_legal(const char *verb, const char *body, const char *reply)
{
	cJSON *question = parse(body), *answer = parse(reply);

	if (strcmp(verb, "filter") == 0)
		expect_filter(question, answer);
	else if (strcmp(verb, "prioritize") == 0)
		expect_prioritize(question, answer);
	else if (strcmp(verb, "preempt") == 0)
		expect_preempt(question, answer);
	else
		cr_expect_str_eq(get(answer, "Error")->valuestring, "");
	cJSON_Delete(question);
	cJSON_Delete(answer);
}

/* ---- the runs ---- */

static int is_request(const struct dirent *d)
{
	return strstr(d->d_name, ".request.json") != NULL;
}

/* "001-filter.request.json" */
static void verb_of(const char *file, char verb[16])
{
	snprintf(verb, 16, "%.*s", (int)strcspn(file + 4, "."), file + 4);
}

static char *direct(struct xf *f, const char *verb, const char *body)
{
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;

	if (strcmp(verb, "filter") == 0)
		return xf_filter(f, body);
	if (strcmp(verb, "prioritize") == 0)
		return xf_prioritize(f, body);
	if (strcmp(verb, "preempt") == 0)
		return xf_preempt(f, body);
	ex_verb_bind(f->s, body, strlen(body), &out, &err);
	return buf_take(&out);
}

static void cluster_text(struct buf *b)
{
	char name[64];

	xf_list_begin(b);
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), NODE_136, i);
		xf_node(b, name, 8, 81920, "NVIDIA A100-SXM4-80GB", false);
		snprintf(name, sizeof(name), "gpu-node-%d", i + 1);
		xf_node(b, name, 8, 81920, "NVIDIA A100-SXM4-80GB", false);
	}
	xf_list_end(b);
}

static int run_folder(const char *folder)
{
	struct dirent **files;
	struct buf cluster = BUF_INIT;
	struct xf ours, theirs;
	struct xf_http h;
	char dir[128], path[400], verb[16], url[32];
	int count;

	cluster_text(&cluster);
	xf_open(&ours, buf_str(&cluster), NULL, NULL);
	xf_open(&theirs, buf_str(&cluster), NULL, NULL);
	xf_http_open(&h, &theirs, 1 << 20);
	snprintf(dir, sizeof(dir), "%s/%s", CAPTURES, folder);
	count = scandir(dir, &files, is_request, alphasort);
	for (int i = 0; i < count; i++) {
		size_t len;
		char *body, *reply, *other;
		long status;

		snprintf(path, sizeof(path), "%s/%s", dir, files[i]->d_name);
		verb_of(files[i]->d_name, verb);
		body = xf_file(path, &len);
		reply = direct(&ours, verb, body);
		expect_legal(verb, body, reply);
		snprintf(url, sizeof(url), "/gpu/%s", verb);
		other = xf_http(&h, url, body, len, NULL, &status);
		cr_expect_eq(status, 200);
		cr_expect_str_eq(other, reply, "%s", path);
		free(other);
		free(reply);
		free(body);
		free(files[i]);
	}
	if (count >= 0)
		free(files);
	xf_http_close(&h);
	xf_close(&theirs);
	xf_close(&ours);
	buf_fini(&cluster);
	return count;
}

Test(captures, kubernetes_1_36)
{
	cr_expect_eq(run_folder("k8s-1.36"), 12);
}

Test(captures, kubernetes_1_32)
{
	cr_expect_eq(run_folder("k8s-1.32"), 12);
}

/* Every cut of a real body is an error that says so, and no reply is missing. */
Test(captures, cut_bodies)
{
	struct buf cluster = BUF_INIT, out = BUF_INIT;
	size_t len;
	char *body = xf_file(CAPTURES "/k8s-1.36/001-filter.request.json", &len), *exact;
	struct err err;
	struct xf f;

	cluster_text(&cluster);
	xf_open(&f, buf_str(&cluster), NULL, NULL);
	for (size_t cut = 0; cut < len; cut += 7) {
		exact = malloc(cut > 0 ? cut : 1);
		memcpy(exact, body, cut);
		buf_reset(&out);
		err = (struct err)ERR_INIT;
		cr_expect_eq(ex_verb_filter(f.s, &f.scratch, exact, cut, &out, &err), ERR_INVALID);
		cr_expect(strstr(buf_str(&out), "\"Error\":\"byte ") != NULL, "%s", buf_str(&out));
		free(exact);
	}
	xf_close(&f);
	buf_fini(&out);
	buf_fini(&cluster);
	free(body);
}
