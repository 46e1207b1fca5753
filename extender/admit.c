#include "extender/admit.h"

#include <stdlib.h>
#include <string.h>

#include "extender/json.h"
#include "extender/mirror.h"
#include "kube/object.h"

/* ---- the answer ---- */

struct answer {
	const char *uid, *version;
	bool allowed;
	const char *message; /* of a refusal */
	struct st_warnings warn;
	struct buf patch;
};

static void put_base64(struct buf *b, const unsigned char *data, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < len; i += 3) {
		unsigned v = (unsigned)data[i] << 16;

		v |= i + 1 < len ? (unsigned)data[i + 1] << 8 : 0;
		v |= i + 2 < len ? data[i + 2] : 0;
		buf_putc(b, digits[v >> 18]);
		buf_putc(b, digits[v >> 12 & 63]);
		buf_putc(b, i + 1 < len ? digits[v >> 6 & 63] : '=');
		buf_putc(b, i + 2 < len ? digits[v & 63] : '=');
	}
}

static void put_answer(struct buf *out, const struct answer *a)
{
	struct buf text = BUF_INIT;
	struct ex_json j = {.b = out};

	ex_json_begin(&j, '{');
	ex_json_key_string(&j, "apiVersion", a->version);
	ex_json_key_string(&j, "kind", "AdmissionReview");
	ex_json_key(&j, "response");
	ex_json_begin(&j, '{');
	ex_json_key_string(&j, "uid", a->uid);
	ex_json_key_bool(&j, "allowed", a->allowed);
	if (!a->allowed) {
		ex_json_key(&j, "status");
		ex_json_begin(&j, '{');
		ex_json_key_i64(&j, "code", 422);
		ex_json_key_string(&j, "reason", "Invalid");
		ex_json_key_string(&j, "message", a->message);
		ex_json_end(&j, '}');
	}
	if (a->warn.count > 0) {
		ex_json_key(&j, "warnings");
		ex_json_begin(&j, '[');
		for (size_t i = 0; i < a->warn.count; i++)
			ex_json_string(&j, a->warn.text[i].msg);
		ex_json_end(&j, ']');
	}
	if (a->allowed && a->patch.len > 0) {
		put_base64(&text, (const unsigned char *)a->patch.data, a->patch.len);
		ex_json_key_string(&j, "patchType", "JSONPatch");
		ex_json_key_string(&j, "patch", buf_str(&text));
		if (!buf_ok(&text))
			out->failed = true;
	}
	ex_json_end(&j, '}');
	ex_json_end(&j, '}');
	buf_fini(&text);
}

/* ---- judging ---- */

static const char *string_of(const cJSON *obj, const char *name)
{
	const cJSON *v = ku_json_get(obj, name);

	return cJSON_IsString(v) ? v->valuestring : "";
}

static void refuse(struct answer *a, struct err *why, const char *key, const char *what)
{
	err_set(why, ERR_INVALID, "annotation %s %s", key, what);
	a->allowed = false;
	a->message = why->msg;
}

/* Allocation keys are the extender's: they come with the bind, and stay. */
static void check_keys(const struct ex_admit *how, const struct st_pod_spec *pod, const cJSON *old,
		       bool create, struct answer *a, struct err *why)
{
	const struct st_contract_options *opt = ex_service_contract(how->service);
	const cJSON *before = ku_json_get(ku_json_get(old, "metadata"), "annotations"), *v;

	for (size_t i = 0; i < pod->annotation_count && a->allowed; i++) {
		const char *key = pod->annotations[i].key;

		if (!st_contract_is_allocation_key(key, opt))
			continue;
		v = ku_json_get(before, key);
		if (create)
			refuse(a, why, key, "is written by the scheduler: remove it");
		else if (!cJSON_IsString(v) ||
			 strcmp(v->valuestring, pod->annotations[i].value) != 0)
			refuse(a, why, key, "is written by the scheduler alone");
	}
	cJSON_ArrayForEach(v, before)
	{
		if (!create && a->allowed && st_contract_is_allocation_key(v->string, opt) &&
		    st_pod_annotation(pod, v->string) == NULL)
			refuse(a, why, v->string, "cannot be removed");
	}
}

/* A label whose value is neither word does nothing: most likely it was to do something. */
static void check_label(const cJSON *pod, struct st_warnings *warn)
{
	const cJSON *labels = ku_json_get(ku_json_get(pod, "metadata"), "labels");
	const char *said = string_of(labels, EX_SCHEDULER_LABEL);

	if (said[0] == '\0' || strcmp(said, "enabled") == 0 || strcmp(said, "disabled") == 0)
		return;
	st_warn(warn, "label " EX_SCHEDULER_LABEL "=%s: neither enabled nor disabled", said);
}

/* Well written, and of no GPU that anybody has told of: no error, for a node with a newer one may come. */
static void check_profiles(const struct ex_admit *how, const struct st_request *req,
			   struct st_warnings *warn)
{
	for (unsigned i = 0; i < req->item_count; i++) {
		const struct st_item *it = &req->items[i];

		if (it->kind == ST_KIND_MIG && it->profile[0] != '\0' &&
		    !ex_mirror_mig_known(how->service, it->profile))
			st_warn(warn,
				"container %s: no GPU is known that has the MIG profile %s: the pod "
				"waits for a node that reports it",
				it->container, it->profile);
	}
}

static int judge_pod(const struct ex_admit *how, const cJSON *request, struct ku_arena *arena,
		     struct answer *a, struct err *why, struct err *err)
{
	const cJSON *pod = ku_json_get(request, "object");
	bool create = strcmp(string_of(request, "operation"), "CREATE") == 0;
	bool ephemeral = !how->mutate &&
			 strcmp(string_of(request, "subResource"), "ephemeralcontainers") == 0;
	struct st_pod_spec spec;
	struct st_request req;
	int rc;

	rc = ku_pod_decode(pod, arena, &spec, why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "out of memory");
	/* What cannot be read here cannot be read by filter: it is said now. */
	if (rc < 0) {
		a->allowed = how->mutate;
		a->message = why->msg;
		return 0;
	}
	if (!how->mutate)
		check_keys(how, &spec, ku_json_get(request, "oldObject"), create, a, why);
	if (!a->allowed || !(create || ephemeral))
		return 0;
	rc = st_contract_parse(&spec, ex_service_contract(how->service), &req, &a->warn, why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "out of memory");
	if (ephemeral) {
		a->warn.count = 0; /* the pod's own were said when it was made */
		a->allowed = rc < 0 || ex_admit_privileged(pod, &req, true, how->refuse_privileged,
							   &a->warn, why) == 0;
		a->message = why->msg;
		return 0;
	}
	if (how->mutate) {
		a->warn.count = 0; /* validate says them */
		return ex_admit_patch(how, pod, &spec, rc == 0 ? &req : NULL, &a->patch, err);
	}
	if (rc == 0)
		rc = ex_admit_privileged(pod, &req, false, how->refuse_privileged, &a->warn, why);
	if (rc == 0)
		check_profiles(how, &req, &a->warn);
	check_label(pod, &a->warn);
	a->allowed = rc == 0;
	a->message = why->msg;
	return 0;
}

/* Annotations can be changed by way of the status too, containers added as ephemeral ones. */
static bool is_pod(const cJSON *request)
{
	const cJSON *kind = ku_json_get(request, "kind");
	const char *sub = string_of(request, "subResource");

	return strcmp(string_of(kind, "kind"), "Pod") == 0 && string_of(kind, "group")[0] == '\0' &&
	       (sub[0] == '\0' || strcmp(sub, "status") == 0 ||
		strcmp(sub, "ephemeralcontainers") == 0);
}

/* A pod that gets its name by generateName has none yet. */
static int give_name(cJSON *root, struct err *err)
{
	cJSON *object = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(root, "request"), "object");
	cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");

	if (!cJSON_IsObject(meta) || string_of(meta, "name")[0] != '\0')
		return 0;
	if (cJSON_AddStringToObject(meta, "name", "unnamed") == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	return 0;
}

static int review(const struct ex_admit *how, const cJSON *root, struct ku_arena *arena,
		  struct buf *out, enum ex_admit_verdict *ret, struct err *err)
{
	const cJSON *request = ku_json_get(root, "request");
	const char *operation = string_of(request, "operation");
	struct answer a = {.uid = string_of(request, "uid"),
			   .version = string_of(root, "apiVersion"),
			   .allowed = true};
	struct err why = ERR_INIT;
	int rc = 0;

	if (strcmp(string_of(root, "kind"), "AdmissionReview") != 0 ||
	    strcmp(a.version, "admission.k8s.io/v1") != 0 || a.uid[0] == '\0')
		return err_set(err, ERR_INVALID,
			       "no AdmissionReview of admission.k8s.io/v1 with request.uid");
	if (is_pod(request) &&
	    (strcmp(operation, "CREATE") == 0 || strcmp(operation, "UPDATE") == 0))
		rc = judge_pod(how, request, arena, &a, &why, err);
	if (rc == 0) {
		put_answer(out, &a);
		*ret = !a.allowed        ? EX_ADMIT_REFUSED
		       : a.patch.len > 0 ? EX_ADMIT_CHANGED
					 : EX_ADMIT_ALLOWED;
	}
	buf_fini(&a.patch);
	return rc;
}

int ex_admit_review(const struct ex_admit *how, const char *body, size_t len, struct buf *out,
		    enum ex_admit_verdict *ret, struct err *err)
{
	struct ku_arena *arena = ku_arena_new();
	cJSON *root = NULL;
	int rc;

	*ret = EX_ADMIT_FAILED;
	if (arena == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	rc = ku_json_parse(body, len, &root, err);
	if (rc == 0)
		rc = give_name(root, err);
	if (rc == 0)
		rc = review(how, root, arena, out, ret, err);
	cJSON_Delete(root);
	ku_arena_free(arena);
	return rc;
}
