/* What goes over the wire between a kube-scheduler and an extender.
 * Source: k8s.io/kube-scheduler/extender/v1. The Go names are the keys. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "kube/object.h"
#include "replay/drive_internal.h"
#include "replay/pod_json.h"

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

static char *quote(const char *name)
{
	cJSON *s = cJSON_CreateString(name);
	char *text = cJSON_PrintUnformatted(s);

	cJSON_Delete(s);
	return text;
}

int drive_names_init(struct drive *d, struct err *err)
{
	struct buf *b = &d->all_names;

	d->quoted = calloc(d->t->node_count + 1, sizeof(*d->quoted));
	if (d->quoted == NULL)
		return out_of_memory(err);
	buf_puts(b, ",\"Nodes\":null,\"NodeNames\":[");
	for (uint32_t i = 0; i < d->t->node_count; i++) {
		d->quoted[i] = quote(strpool_str(d->t->node_names, i));
		if (d->quoted[i] == NULL)
			return out_of_memory(err);
		if (i > 0)
			buf_putc(b, ',');
		buf_puts(b, d->quoted[i]);
	}
	buf_puts(b, "]}");
	return buf_ok(b) ? 0 : out_of_memory(err);
}

/* Namespace and name of the pod that arrives in a step; clones get a name of their own. */
static void pod_identity(const struct drive *d, size_t step, char ns[300], char name[300])
{
	const char *full = strpool_str(d->t->pod_names, d->o->pods[step]);
	const char *slash = rp_trace_pods_are_json(d->t) ? strchr(full, '/') : NULL;

	snprintf(ns, 300, "%.*s", slash != NULL ? (int)(slash - full) : 7,
		 slash != NULL ? full : "default");
	if (slash != NULL)
		full = slash + 1;
	if (d->clone[step])
		snprintf(name, 300, "%s-%zu", full, step);
	else
		snprintf(name, 300, "%s", full);
}

int drive_args(struct drive *d, size_t step, const uint32_t *nodes, size_t count, struct buf *body,
	       struct err *err)
{
	const struct rp_shape *s = &d->t->shapes[d->t->pods[d->o->pods[step]]];
	char ns[300], name[300], uid[RP_UID_CAP], *pod;

	pod_identity(d, step, ns, name);
	pod = rp_pod_json(&s->req, ns, name, rp_drive_uid(d->opt->run, step, uid));
	if (pod == NULL)
		return out_of_memory(err);
	buf_puts(body, "{\"Pod\":");
	buf_puts(body, pod);
	cJSON_free(pod);
	if (nodes == NULL) {
		buf_put(body, d->all_names.data, d->all_names.len);
	} else {
		buf_puts(body, ",\"Nodes\":null,\"NodeNames\":[");
		for (size_t i = 0; i < count; i++) {
			if (i > 0)
				buf_putc(body, ',');
			buf_puts(body, d->quoted[nodes[i]]);
		}
		buf_puts(body, "]}");
	}
	return buf_ok(body) ? 0 : out_of_memory(err);
}

int drive_bind_args(struct drive *d, size_t step, struct buf *body, struct err *err)
{
	const char *node = strpool_str(d->t->node_names, d->nodes[step]);
	char ns[300], name[300], uid[RP_UID_CAP];
	cJSON *o = cJSON_CreateObject();
	char *text = NULL;

	pod_identity(d, step, ns, name);
	rp_drive_uid(d->opt->run, step, uid);
	if (cJSON_AddStringToObject(o, "PodName", name) != NULL &&
	    cJSON_AddStringToObject(o, "PodNamespace", ns) != NULL &&
	    cJSON_AddStringToObject(o, "PodUID", uid) != NULL &&
	    cJSON_AddStringToObject(o, "Node", node) != NULL)
		text = cJSON_PrintUnformatted(o);
	cJSON_Delete(o);
	if (text == NULL)
		return out_of_memory(err);
	buf_puts(body, text);
	cJSON_free(text);
	return buf_ok(body) ? 0 : out_of_memory(err);
}

/* ---- replies ---- */

static int not_an_answer(enum rp_verb verb, const struct rp_call *call, const char *what,
			 struct err *err)
{
	static const char *const names[RP_VERBS] = {"filter", "prioritize", "bind"};

	return err_set(err, ERR_IO, "%s: %s: %.*s", names[verb], what,
		       call->reply.len < 200 ? (int)call->reply.len : 200,
		       call->reply.data != NULL ? call->reply.data : "");
}

/* The reply as JSON; *ret NULL where the status is not 200, which has been counted then. */
static int parse(struct drive *d, enum rp_verb verb, size_t step, const struct rp_call *call,
		 cJSON **ret, struct err *err)
{
	struct err why = ERR_INIT;
	char text[64];
	int rc;

	*ret = NULL;
	if (call->status != 200) {
		d->result.calls_refused[verb]++;
		snprintf(text, sizeof(text), "HTTP status %ld", call->status);
		return rp_tally_add(d->result.refusals[verb], text, 1, step + 1, err);
	}
	rc = ku_json_parse(call->reply.data != NULL ? call->reply.data : "", call->reply.len, ret,
			   &why);
	if (rc == ERR_NOMEM)
		return out_of_memory(err);
	return rc < 0 ? not_an_answer(verb, call, why.msg, err) : 0;
}

static int count_reasons(struct drive *d, size_t step, const cJSON *map, struct err *err)
{
	const cJSON *v;

	cJSON_ArrayForEach(v, map)
	{
		int rc = !cJSON_IsString(v) ? 0
					    : rp_tally_add(d->result.refusals[RP_FILTER],
							   v->valuestring, 1, step + 1, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int take_filter(struct drive *d, size_t step, const cJSON *root, const struct rp_call *call,
		       struct drive_reply *ret, struct err *err)
{
	const cJSON *error = cJSON_GetObjectItem(root, "Error"), *v;
	int rc;

	if (!cJSON_IsObject(root))
		return not_an_answer(RP_FILTER, call, "not an object", err);
	if (cJSON_IsString(error) && error->valuestring[0] != '\0') {
		d->result.calls_refused[RP_FILTER]++;
		return rp_tally_add(d->result.refusals[RP_FILTER], error->valuestring, 1, step + 1,
				    err);
	}
	cJSON_ArrayForEach(v, cJSON_GetObjectItem(root, "NodeNames"))
	{
		uint32_t id = cJSON_IsString(v) ? strpool_find(d->t->node_names, v->valuestring,
							       strlen(v->valuestring))
						: STRPOOL_NONE;

		if (id == STRPOOL_NONE || ret->count == d->t->node_count)
			return not_an_answer(RP_FILTER, call, "a node that was not asked about",
					     err);
		ret->scores[ret->count] = 0;
		ret->nodes[ret->count++] = id;
	}
	if (ret->count > 0)
		return 0;
	rc = count_reasons(d, step, cJSON_GetObjectItem(root, "FailedNodes"), err);
	return rc < 0 ? rc
		      : count_reasons(d, step,
				      cJSON_GetObjectItem(root, "FailedAndUnresolvableNodes"), err);
}

int drive_filter_reply(struct drive *d, size_t step, const struct rp_call *call,
		       struct drive_reply *ret, struct err *err)
{
	cJSON *root = NULL;
	int rc;

	ret->count = 0;
	rc = parse(d, RP_FILTER, step, call, &root, err);
	if (rc == 0 && root != NULL)
		rc = take_filter(d, step, root, call, ret, err);
	cJSON_Delete(root);
	return rc;
}

static int take_scores(struct drive *d, const cJSON *root, const struct rp_call *call,
		       struct drive_reply *ret, struct err *err)
{
	const cJSON *v;
	size_t at = 0;

	if (!cJSON_IsArray(root))
		return not_an_answer(RP_PRIORITIZE, call, "not an array", err);
	cJSON_ArrayForEach(v, root)
	{
		const cJSON *host = cJSON_GetObjectItem(v, "Host");
		const cJSON *score = cJSON_GetObjectItem(v, "Score");
		uint32_t id;
		size_t i;

		if (!cJSON_IsString(host) || !cJSON_IsNumber(score) ||
		    fabs(score->valuedouble) > 1e15 ||
		    floor(score->valuedouble) < score->valuedouble)
			return not_an_answer(RP_PRIORITIZE, call,
					     "an entry without Host and integer Score", err);
		id = strpool_find(d->t->node_names, host->valuestring, strlen(host->valuestring));
		/* Usually the order is that of the question. */
		for (i = 0; i < ret->count && ret->nodes[(at + i) % ret->count] != id; i++)
			;
		if (i == ret->count)
			return not_an_answer(RP_PRIORITIZE, call, "a node that was not asked about",
					     err);
		at = (at + i) % ret->count;
		ret->scores[at] = (int64_t)score->valuedouble;
		at = (at + 1) % ret->count;
	}
	return 0;
}

int drive_prioritize_reply(struct drive *d, const struct rp_call *call, struct drive_reply *ret,
			   struct err *err)
{
	cJSON *root = NULL;
	int rc = parse(d, RP_PRIORITIZE, 0, call, &root, err);

	/* A scheduler ignores a prioritize that failed: all scores are 0 then. */
	if (rc == 0 && root != NULL)
		rc = take_scores(d, root, call, ret, err);
	cJSON_Delete(root);
	return rc;
}

int drive_bind_reply(struct drive *d, size_t step, const struct rp_call *call, bool *ret_ok,
		     struct err *err)
{
	const cJSON *error;
	cJSON *root = NULL;
	int rc = parse(d, RP_BIND, step, call, &root, err);

	*ret_ok = false;
	if (rc < 0 || root == NULL)
		return rc;
	error = cJSON_GetObjectItem(root, "Error");
	if (!cJSON_IsObject(root)) {
		rc = not_an_answer(RP_BIND, call, "not an object", err);
	} else if (cJSON_IsString(error) && error->valuestring[0] != '\0') {
		d->result.calls_refused[RP_BIND]++;
		rc = rp_tally_add(d->result.refusals[RP_BIND], error->valuestring, 1, step + 1,
				  err);
	} else {
		*ret_ok = true;
	}
	cJSON_Delete(root);
	return rc;
}
