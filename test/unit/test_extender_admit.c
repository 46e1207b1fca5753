/* Admission reviews: what is refused, what is changed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/admit.h"
#include "extender/mirror.h"
#include "kube/object.h"
#include "test/lib/extender_fixture.h"
#include "test/lib/oom.h"

static struct xf f;

static void init(void)
{
	struct buf b = BUF_INIT;

	xf_list_begin(&b);
	xf_node(&b, "n1", 2, 40960, "A", false);
	xf_node(&b, "n2", 1, 81920, "B", false);
	xf_list_end(&b);
	xf_open(&f, buf_str(&b), NULL, NULL);
	buf_fini(&b);
}

static void fini(void)
{
	xf_close(&f);
}

TestSuite(extender_admit, .init = init, .fini = fini);

/* A review of a pod with these annotations, limits (members) and old annotations (NULL: CREATE). */
static char *review_text(const char *annotations, const char *limits, const char *old)
{
	struct buf b = BUF_INIT;

	buf_printf(
		&b,
		"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{"
		"\"uid\":\"r-1\",\"kind\":{\"group\":\"\",\"version\":\"v1\",\"kind\":\"Pod\"},"
		"\"operation\":\"%s\",\"object\":{\"metadata\":{\"generateName\":\"p-\","
		"\"annotations\":{%s}},\"spec\":{\"schedulerName\":\"default-scheduler\","
		"\"initContainers\":[{\"name\":\"i\"}],\"containers\":[{\"name\":\"main\"%s%s%s}]}}",
		old != NULL ? "UPDATE" : "CREATE", annotations,
		limits != NULL ? ",\"resources\":{\"limits\":{" : "", limits != NULL ? limits : "",
		limits != NULL ? "}}" : "");
	if (old != NULL)
		buf_printf(&b, ",\"oldObject\":{\"metadata\":{\"annotations\":{%s}}}", old);
	buf_puts(&b, "}}");
	return buf_take(&b);
}

/* The reply's "response"; *ret_root is to be deleted. */
static const cJSON *review_as(const struct ex_admit *how, const char *text,
			      enum ex_admit_verdict *ret, cJSON **ret_root)
{
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;

	cr_assert_eq(ex_admit_review(how, text, strlen(text), &out, ret, &err), 0, "%s", err.msg);
	cr_assert_eq(ku_json_parse(out.data, out.len, ret_root, &err), 0, "%s", err.msg);
	buf_fini(&out);
	cr_expect_str_eq(ku_json_get(*ret_root, "apiVersion")->valuestring, "admission.k8s.io/v1");
	cr_expect_str_eq(ku_json_get(ku_json_get(*ret_root, "response"), "uid")->valuestring,
			 "r-1");
	return ku_json_get(*ret_root, "response");
}

static const cJSON *review(const char *text, bool mutate, const char *scheduler,
			   enum ex_admit_verdict *ret, cJSON **ret_root)
{
	const struct ex_admit how = {
		.service = f.s, .mutate = mutate, .scheduler = scheduler, .unlabelled = true};

	return review_as(&how, text, ret, ret_root);
}

static void expect_valid(const char *annotations, const char *old, const char *why)
{
	char *text = review_text(annotations, NULL, old);
	enum ex_admit_verdict v;
	const cJSON *r, *message;
	cJSON *root;

	r = review(text, false, "", &v, &root);
	message = ku_json_get(ku_json_get(r, "status"), "message");
	cr_expect_eq(cJSON_IsTrue(ku_json_get(r, "allowed")), why == NULL, "%s", annotations);
	cr_expect_eq(v, why == NULL ? EX_ADMIT_ALLOWED : EX_ADMIT_REFUSED);
	if (why != NULL)
		cr_expect(message != NULL && strstr(message->valuestring, why) != NULL, "%s: %s",
			  annotations, message != NULL ? message->valuestring : "-");
	cJSON_Delete(root);
	free(text);
}

#define ALLOCATION "\"tessera.dev/allocation\":\"v1;n1;0123456789abcdef;main=d\""
#define DEVICES "\"nvidia.com/container.main.gpus.devices\":\"GPU-n1-0\""

Test(extender_admit, validate)
{
	static const struct {
		const char *annotations, *old, *why;
	} rows[] = {
		{"", NULL, NULL},
		{"\"gpu-fraction\":\"0.5\"", NULL, NULL},
		{"\"gpu-fraction\":\"1.5\"", NULL, "gpu-fraction"},
		{"\"gpu-fraction\":\"0.5\",\"gpu-memory\":\"1\"", NULL, "gpu-memory"},
		{"\"gpu-memory\":\"3000000000\"", NULL, "3000000000"},
		{"\"nvidia.com/container.nobody.gpu-memory.request\":\"1Gi\"", NULL, "nobody"},
		{"\"gpu-memory\":7", NULL, "gpu-memory"},
		{ALLOCATION, NULL, "tessera.dev/allocation"},
		{DEVICES, NULL, "gpus.devices"},
		/* afterwards: what is there stays, and nothing comes */
		{DEVICES "," ALLOCATION, DEVICES "," ALLOCATION, NULL},
		{ALLOCATION, "", "written by the scheduler alone"},
		{"\"nvidia.com/container.main.gpus.devices\":\"GPU-n1-1\"", DEVICES,
		 "written by the scheduler alone"},
		{"", DEVICES, "cannot be removed"},
		/* a wrong request of a pod that exists is not an update's fault */
		{"\"gpu-fraction\":\"1.5\"", "\"gpu-fraction\":\"1.5\"", NULL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		expect_valid(rows[i].annotations, rows[i].old, rows[i].why);
}

/* "" = no warning */
static void expect_warning(const char *annotations, const char *words)
{
	char *text = review_text(annotations, NULL, NULL);
	enum ex_admit_verdict v;
	cJSON *root;
	const cJSON *r = review(text, false, "", &v, &root);
	const cJSON *said = cJSON_GetArrayItem(ku_json_get(r, "warnings"), 0);

	cr_expect_eq(v, EX_ADMIT_ALLOWED);
	cr_expect_eq(said != NULL, words[0] != '\0', "%s", annotations);
	cr_expect(said == NULL || strstr(said->valuestring, words) != NULL, "%s",
		  said != NULL ? said->valuestring : "");
	cJSON_Delete(root);
	free(text);
}

#define PROFILE(name) "\"tessera.dev/container.main.mig-profile\":\"" name "\""

Test(extender_admit, a_profile_that_no_gpu_has_is_warned_of)
{
	struct st_gpu_spec gpu = {.uuid = "GPU-new",
				  .mem_mib = 500000,
				  .mig_enabled = true,
				  .has_geometry = true,
				  .geometry = {.compute_total = 9,
					       .units_total = 9,
					       .profile_count = 1,
					       .profiles = {{.name = "9g.500gb",
							     .mem_mib = 500000,
							     .compute_slices = 9,
							     .units = 9,
							     .max_instances = 1,
							     .start_count = 1}}}};
	struct st_node_spec node = {
		.name = "new", .from_inventory = true, .gpu_count = 1, .gpus = &gpu};
	struct ex_mirror_node told;
	struct err err = ERR_INIT;

	expect_warning(PROFILE("1g.10gb"), "");
	expect_warning(PROFILE("9g.500gb"),
		       "container main: no GPU is known that has the MIG profile 9g.500gb");
	/* A node may bring it. */
	cr_assert_eq(ex_mirror_node(f.s, &node, NULL, &told, &err), 0, "%s", err.msg);
	cr_expect_not(told.refused, "%s", told.why.msg);
	expect_warning(PROFILE("9g.500gb"), "");
}

Test(extender_admit, warnings_are_passed_on)
{
	char *text = review_text("\"nvidia.com/container.main.gpu-compute.mode\":\"sm-sharing\"",
				 NULL, NULL);
	enum ex_admit_verdict v;
	cJSON *root;
	const cJSON *r = review(text, false, "", &v, &root);

	cr_expect(cJSON_IsTrue(ku_json_get(r, "allowed")));
	cr_expect_eq(cJSON_GetArraySize(ku_json_get(r, "warnings")), 1);
	cJSON_Delete(root);
	free(text);
}

/* ---- mutate ---- */

static size_t decode(const char *text, char *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned v = 0, bits = 0;
	size_t n = 0;

	for (; *text != '\0' && *text != '='; text++) {
		v = v << 6 | (unsigned)(strchr(digits, *text) - digits);
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			out[n++] = (char)(v >> bits & 255);
		}
	}
	out[n] = '\0';
	return n;
}

static void expect_patch(const char *annotations, const char *limits, const char *scheduler,
			 const char *want)
{
	char *text = review_text(annotations, limits, NULL), patch[4096] = "";
	enum ex_admit_verdict v;
	cJSON *root;
	const cJSON *r = review(text, true, scheduler, &v, &root), *p = ku_json_get(r, "patch");

	cr_expect(cJSON_IsTrue(ku_json_get(r, "allowed")));
	if (p != NULL) {
		cr_expect_str_eq(ku_json_get(r, "patchType")->valuestring, "JSONPatch");
		decode(p->valuestring, patch);
	}
	cr_expect_eq(v, want[0] != '\0' ? EX_ADMIT_CHANGED : EX_ADMIT_ALLOWED);
	cr_expect_str_eq(patch, want);
	cJSON_Delete(root);
	free(text);
}

#define EMPTY "{\"op\":\"add\",\"path\":\"/spec/containers/0/resources\",\"value\":{}}"
#define ADD(field, mib)                                                                            \
	",{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/" field                          \
	"\",\"value\":{\"tessera.dev/gpu-memory\":\"" mib "\"}}"
#define ADDS(mib) "[" EMPTY ADD("limits", mib) ADD("requests", mib) "]"

Test(extender_admit, mutate_adds_what_makes_the_scheduler_call)
{
	expect_patch("", NULL, "", "");
	expect_patch("\"gpu-memory\":\"1000\"", NULL, "", ADDS("1000"));
	expect_patch("\"gpu-memory\":\"1000\",\"gpu-fraction-num-devices\":\"3\"", NULL, "",
		     ADDS("3000"));
	/* of a fraction, what it is on the smallest GPU */
	expect_patch("\"gpu-fraction\":\"0.5\"", NULL, "", ADDS("20480"));
	expect_patch("\"tessera.dev/container.main.mig-profile\":\"1g.10gb\"", NULL, "", ADDS("1"));
	expect_patch("", "\"nvidia.com/gpu\":\"2\"", "",
		     "[{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/limits/"
		     "tessera.dev~1gpu-memory\",\"value\":\"81920\"}" ADD("requests", "81920") "]");
	/* what is there is left */
	expect_patch("\"gpu-memory\":\"1000\"", "\"tessera.dev/gpu-memory\":\"7\"", "", "");
	/* what validate will refuse is left to it */
	expect_patch("\"gpu-memory\":\"many\"", NULL, "mine", "");
}

Test(extender_admit, case_08_mutate_removes_forged_keys)
{
	expect_patch(DEVICES "," ALLOCATION, NULL, "",
		     "[{\"op\":\"remove\",\"path\":\"/metadata/annotations/"
		     "nvidia.com~1container.main.gpus.devices\"},{\"op\":\"remove\",\"path\":"
		     "\"/metadata/annotations/tessera.dev~1allocation\"}]");
}

#define KEY(key, value) "\"nvidia.com/container.main." key "\":\"" value "\""
#define REMOVE(key)                                                                                \
	"{\"op\":\"remove\",\"path\":\"/metadata/annotations/nvidia.com~1container.main." key "\"}"

/* A pod copied from one that is bound: what the bind wrote beside the allocation keys would be a second
 * share without them. */
Test(extender_admit, case_08_mutate_removes_what_a_bind_left)
{
	static const char all[] =
		DEVICES "," ALLOCATION "," KEY("gpu-memory.request", "1000Mi") "," KEY(
			"gpu-memory.limit", "1000Mi") "," KEY("gpu-compute.mode", "time-slicing");
	char copied[1024];

	snprintf(copied, sizeof(copied), "\"gpu-memory\":\"1000\",%s", all);
	expect_patch(copied, "\"tessera.dev/gpu-memory\":\"1000\"", "",
		     "[" REMOVE("gpu-memory.limit") "," REMOVE("gpu-memory.request") "," REMOVE(
			     "gpus.devices") ",{\"op\":\"remove\",\"path\":"
					     "\"/metadata/annotations/tessera.dev~1allocation\"}]");
	/* Asked for by these very keys: they stay. */
	expect_patch(
		all, "\"tessera.dev/gpu-memory\":\"1000\"", "",
		"[" REMOVE("gpus.devices") ",{\"op\":\"remove\",\"path\":"
					   "\"/metadata/annotations/tessera.dev~1allocation\"}]");
}

Test(extender_admit, case_32_the_scheduler_is_set_for_gpu_pods_of_the_default_one)
{
	char *text = review_text("\"gpu-memory\":\"1\"", NULL, NULL), patch[4096], *at;
	enum ex_admit_verdict v;
	cJSON *root;
	const cJSON *r;

	r = review(text, true, "tessera", &v, &root);
	decode(ku_json_get(r, "patch")->valuestring, patch);
	cr_expect(strstr(patch, "{\"op\":\"add\",\"path\":\"/spec/schedulerName\",\"value\":"
				"\"tessera\"}") != NULL);
	cJSON_Delete(root);
	/* Somebody's own choice is left. */
	at = strstr(text, "default-scheduler");
	memcpy(at, "their-own-choice!", strlen("their-own-choice!"));
	r = review(text, true, "tessera", &v, &root);
	decode(ku_json_get(r, "patch")->valuestring, patch);
	cr_expect(strstr(patch, "schedulerName") == NULL);
	cJSON_Delete(root);
	free(text);
	expect_patch("", NULL, "tessera", "");
}

/* The review of a GPU pod with this label. */
static char *labelled_review(const char *value)
{
	char *text = review_text("\"gpu-memory\":\"1\"", NULL, NULL), *at, *ret = NULL;

	at = strstr(text, "\"generateName\"");
	cr_assert(asprintf(&ret, "%.*s\"labels\":{\"tessera.dev/scheduler\":\"%s\"},%s",
			   (int)(at - text), text, value, at) > 0);
	free(text);
	return ret;
}

Test(extender_admit, case_32_a_pod_label_goes_before_the_namespace)
{
	static const struct {
		const char *label, *scheduler;
		bool unlabelled, set;
		int warnings;
	} rows[] = {
		{"enabled", "tessera", false, true, 0},  {"enabled", "tessera", true, true, 0},
		{"disabled", "tessera", true, false, 0}, {"disabled", "tessera", false, false, 0},
		{"tessera", "tessera", false, false, 1}, {"tessera", "tessera", true, true, 1},
		{"", "tessera", true, true, 0},          {"enabled", "", true, false, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ex_admit how = {.service = f.s,
				       .mutate = true,
				       .scheduler = rows[i].scheduler,
				       .unlabelled = rows[i].unlabelled};
		char *text = labelled_review(rows[i].label), patch[4096];
		enum ex_admit_verdict v;
		cJSON *root;
		const cJSON *r = review_as(&how, text, &v, &root);

		decode(ku_json_get(r, "patch")->valuestring, patch);
		cr_expect_eq(strstr(patch, "/spec/schedulerName") != NULL, rows[i].set, "row %zu",
			     i);
		cJSON_Delete(root);
		how.mutate = false;
		r = review_as(&how, text, &v, &root);
		cr_expect_eq(v, EX_ADMIT_ALLOWED);
		cr_expect_eq(cJSON_GetArraySize(ku_json_get(r, "warnings")), rows[i].warnings,
			     "row %zu", i);
		cJSON_Delete(root);
		free(text);
	}
}

Test(extender_admit, bodies_that_are_no_review)
{
	static const char *const rows[] = {
		"",
		"[]",
		"{}",
		"{\"kind\":\"AdmissionReview\"}",
		"{\"apiVersion\":\"admission.k8s.io/v1beta1\",\"kind\":\"AdmissionReview\","
		"\"request\":{\"uid\":\"u\"}}",
		"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\","
		"\"request\":{}}"};
	const struct ex_admit how = {.service = f.s, .scheduler = ""};
	enum ex_admit_verdict v;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf out = BUF_INIT;
		struct err err = ERR_INIT;

		cr_expect_eq(ex_admit_review(&how, rows[i], strlen(rows[i]), &out, &v, &err),
			     ERR_INVALID, "%s", rows[i]);
		cr_expect_eq(out.len, 0);
		cr_expect_eq(v, EX_ADMIT_FAILED);
		buf_fini(&out);
	}
}

/* Other objects are none of our business. */
Test(extender_admit, other_kinds_pass)
{
	const char *text = "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\","
			   "\"request\":{\"uid\":\"r-1\",\"kind\":{\"group\":\"apps\",\"kind\":"
			   "\"Deployment\"},\"operation\":\"CREATE\",\"object\":{\"metadata\":7}}}";
	enum ex_admit_verdict v;
	cJSON *root;
	const cJSON *r = review(text, true, "x", &v, &root);

	cr_expect(cJSON_IsTrue(ku_json_get(r, "allowed")));
	cr_expect_eq(v, EX_ADMIT_ALLOWED);
	cJSON_Delete(root);
}

/* ---- out of memory ---- */

static void sweep_review(bool mutate, const char *text)
{
	const struct ex_admit how = {
		.service = f.s, .mutate = mutate, .scheduler = "tessera", .unlabelled = true};

	OOM_SWEEP(n) {
		struct buf out = BUF_INIT;
		struct err err = ERR_INIT;
		enum ex_admit_verdict v;
		bool hit;
		int rc;

		oom_fail_at(n);
		rc = ex_admit_review(&how, text, strlen(text), &out, &v, &err);
		hit = oom_disarm();
		/* What was written in part says so itself, and is not sent. */
		cr_expect(rc == 0 || rc == ERR_NOMEM, "%u: %d %s", n, rc, err.msg);
		if (hit)
			cr_expect(rc < 0 || !buf_ok(&out), "%u: an answer made without memory", n);
		else
			cr_expect(rc == 0 && buf_ok(&out));
		buf_fini(&out);
		if (!hit)
			break;
	}
}

Test(extender_admit, oom_sweep)
{
	char *text = review_text("\"gpu-memory\":\"1000\"," DEVICES "," ALLOCATION, NULL, NULL);
	char *bad = review_text("\"gpu-fraction\":\"1.5\"", NULL, NULL);

	sweep_review(true, text);
	sweep_review(false, text);
	sweep_review(false, bad);
	free(text);
	free(bad);
}

/* A pod taken from the API server: all of it, or the books as they were. */
Test(extender_admit, oom_sweep_of_the_mirror)
{
	struct st_kv whole = {"nvidia.com/gpu", "1"};
	struct st_container_spec main = {.name = "main", .resources = &whole, .resource_count = 1};
	struct st_pod_spec pod = {.uid = "u",
				  .ns = "ns",
				  .name = "p",
				  .node = "n1",
				  .nominated_node = "",
				  .scheduler = "",
				  .phase = ST_PHASE_RUNNING,
				  .container_count = 1,
				  .containers = &main};
	char *before = xf_books(&f);

	OOM_SWEEP(n) {
		struct ex_mirror_pod ret;
		struct err err = ERR_INIT;
		char *after;
		bool hit;
		int rc;

		oom_fail_at(n);
		rc = ex_mirror_pod(f.s, &pod, false, &ret, &err);
		hit = oom_disarm();
		xf_check(&f);
		after = xf_books(&f);
		if (rc < 0) {
			cr_expect_eq(rc, ERR_NOMEM, "%u: %s", n, err.msg);
			cr_expect_str_eq(after, before);
		} else {
			cr_expect_eq(ret.kind, EX_MIRROR_BOUND);
			cr_expect_str_neq(after, before);
			ex_mirror_pod_gone(f.s, "u");
		}
		free(after);
		if (!hit)
			break;
	}
	free(before);
}

/* A GPU pod as the API server shows it: annotations, the pod's securityContext, and the containers. */
static const cJSON *review_secured(const char *annotations, const char *context,
				   const char *containers, const char *operation, bool refuse,
				   enum ex_admit_verdict *ret, cJSON **ret_root)
{
	const struct ex_admit how = {.service = f.s, .scheduler = "", .refuse_privileged = refuse};
	struct buf b = BUF_INIT, out = BUF_INIT;
	struct err err = ERR_INIT;

	buf_printf(
		&b,
		"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{"
		"\"uid\":\"r-1\",\"kind\":{\"group\":\"\",\"version\":\"v1\",\"kind\":\"Pod\"},"
		"\"operation\":\"%s\",\"object\":{\"metadata\":{\"name\":\"p\","
		"\"annotations\":{%s}},\"spec\":{\"securityContext\":{%s},%s}}}}",
		operation, annotations, context, containers);
	cr_assert_eq(ex_admit_review(&how, buf_str(&b), b.len, &out, ret, &err), 0, "%s", err.msg);
	cr_assert_eq(ku_json_parse(out.data, out.len, ret_root, &err), 0, "%s", err.msg);
	buf_fini(&b);
	buf_fini(&out);
	return ku_json_get(*ret_root, "response");
}

#define SHARED                                                                                     \
	"\"gpu-memory\":\"1024\",\"nvidia.com/container.main.gpu-compute.mode\":\"sm-sharing\""
#define MAIN(context) "\"containers\":[{\"name\":\"main\",\"securityContext\":{" context "}}]"

/* What a container could have beyond what it is given is said, and refused where that is wanted. */
Test(extender_admit, privileged_containers_and_root)
{
	static const struct {
		const char *annotations, *context, *containers, *warning;
		bool privileged;
	} rows[] = {
		{"\"gpu-memory\":\"1024\"", "", MAIN("\"privileged\":true"),
		 "container \"main\": securityContext.privileged: \"true\" lets it use every GPU",
		 true},
		{"\"gpu-memory\":\"1024\"", "",
		 MAIN("") ",\"initContainers\":[{\"name\":\"i\",\"securityContext\":{\"privileged\":"
			  "true}}]",
		 "container \"i\": securityContext.privileged", true},
		{"\"gpu-memory\":\"1024\"", "", MAIN("\"privileged\":false"), NULL, false},
		{"\"x\":\"y\"", "", MAIN("\"privileged\":true"), NULL,
		 false}, /* no GPU asked for */
		{SHARED, "", MAIN(""), "container \"main\": may run as root", false},
		{SHARED, "\"runAsUser\":0", MAIN(""), "may run as root", false},
		{SHARED, "\"runAsUser\":1000", MAIN("\"runAsUser\":0"), "may run as root", false},
		{SHARED, "\"runAsNonRoot\":true", MAIN("\"runAsNonRoot\":false"), "may run as root",
		 false},
		{SHARED, "\"runAsNonRoot\":true", MAIN(""), NULL, false},
		{SHARED, "", MAIN("\"runAsUser\":1000"), NULL, false},
		{"\"gpu-memory\":\"1024\"", "", MAIN(""), NULL, false}, /* time-slicing */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int refuse = 0; refuse < 2; refuse++) {
			enum ex_admit_verdict v;
			cJSON *root;
			const cJSON *r =
				review_secured(rows[i].annotations, rows[i].context,
					       rows[i].containers, "CREATE", refuse, &v, &root);
			const cJSON *w = cJSON_GetArrayItem(ku_json_get(r, "warnings"), 0);
			bool refused = rows[i].privileged && refuse;
			const char *said = cJSON_IsString(w) ? w->valuestring : NULL;

			if (refused)
				said = ku_json_get(ku_json_get(r, "status"), "message")
					       ->valuestring;
			cr_expect_eq(v, refused ? EX_ADMIT_REFUSED : EX_ADMIT_ALLOWED, "row %zu",
				     i);
			cr_expect_eq(said != NULL, rows[i].warning != NULL, "row %zu: %s", i,
				     said != NULL ? said : "-");
			if (said != NULL && rows[i].warning != NULL)
				cr_expect(strstr(said, rows[i].warning) != NULL, "row %zu: %s", i,
					  said);
			cJSON_Delete(root);
		}
	}
}

#define DEBUG_WITH(context)                                                                        \
	MAIN("\"privileged\":true")                                                                \
	",\"ephemeralContainers\":[{\"name\":\"d\",\"securityContext\":{" context "}}]"

/* `kubectl debug` adds a container to a pod that runs: it alone is looked at, nothing else of an update. */
Test(extender_admit, privileged_debug_containers)
{
	static const char debug[] = "UPDATE\",\"subResource\":\"ephemeralcontainers";
	static const struct {
		const char *annotations, *containers, *operation;
		bool said;
	} rows[] = {
		{"\"gpu-memory\":\"1024\"", DEBUG_WITH("\"privileged\":true"), debug, true},
		{"\"gpu-memory\":\"1024\"", DEBUG_WITH("\"privileged\":false"), debug, false},
		{"\"gpu-memory\":\"nonsense\"", DEBUG_WITH("\"privileged\":true"), debug, false},
		{"\"x\":\"y\"", DEBUG_WITH("\"privileged\":true"), debug, false},
		{"\"gpu-memory\":\"1024\"", DEBUG_WITH("\"privileged\":true"), "UPDATE", false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int refuse = 0; refuse < 2; refuse++) {
			enum ex_admit_verdict v;
			cJSON *root;
			const cJSON *r = review_secured(rows[i].annotations, "", rows[i].containers,
							rows[i].operation, refuse, &v, &root);
			bool warned = ku_json_get(r, "warnings") != NULL;

			cr_expect_eq(v,
				     rows[i].said && refuse ? EX_ADMIT_REFUSED : EX_ADMIT_ALLOWED,
				     "row %zu", i);
			cr_expect_eq(warned, rows[i].said && !refuse, "row %zu", i);
			cJSON_Delete(root);
		}
	}
}
