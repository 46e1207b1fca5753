/* Bytes as an AdmissionReview: what is none is an error that wrote nothing; else the answer is JSON for
 * the same uid, mutate refuses nobody, validate changes nothing, and what mutate did not have to change
 * it does not change. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/admit.h"
#include "extender/extender.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "broken: %s\n", what);
		abort();
	}
}

static void answer(struct ex_service *s, bool mutate, const char *text, size_t len)
{
	const struct ex_admit how = {
		.service = s, .mutate = mutate, .scheduler = "tessera", .unlabelled = true};
	enum ex_admit_verdict v;
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	const cJSON *response, *uid, *asked;
	cJSON *root = NULL, *body = NULL;

	if (ex_admit_review(&how, text, len, &out, &v, &err) < 0) {
		require(out.len == 0 && v == EX_ADMIT_FAILED && err.msg[0] != '\0', "an error");
		buf_fini(&out);
		return;
	}
	require(buf_ok(&out) && ku_json_parse(out.data, out.len, &root, NULL) == 0,
		"a reply in JSON");
	require(ku_json_parse(text, len, &body, NULL) == 0, "a body that was taken");
	response = ku_json_get(root, "response");
	uid = ku_json_get(response, "uid");
	asked = ku_json_get(ku_json_get(body, "request"), "uid");
	require(cJSON_IsString(uid) && cJSON_IsString(asked) &&
			strcmp(uid->valuestring, asked->valuestring) == 0,
		"the uid");
	require(cJSON_IsTrue(ku_json_get(response, "allowed")) == (v != EX_ADMIT_REFUSED),
		"the verdict");
	require((ku_json_get(response, "patch") != NULL) == (v == EX_ADMIT_CHANGED), "the patch");
	require(v != (mutate ? EX_ADMIT_REFUSED : EX_ADMIT_CHANGED), "whose task it is");
	require(v != EX_ADMIT_REFUSED ||
			cJSON_IsString(ku_json_get(ku_json_get(response, "status"), "message")),
		"a refusal without a word");
	cJSON_Delete(root);
	cJSON_Delete(body);
	buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char cluster[] =
		"{\"kind\":\"NodeList\",\"items\":[{\"metadata\":{\"name\":\"n1\",\"labels\":{"
		"\"nvidia.com/gpu.count\":\"2\",\"nvidia.com/gpu.memory\":\"40960\"}}}]}";
	static struct ex_service *s;
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT, .contract = {.hami = true}};
	struct err err = ERR_INIT;

	if (s == NULL) {
		s = ex_service_new(&cfg, &err);
		require(s != NULL, "memory");
		require(ex_service_load_text(s, cluster, sizeof(cluster) - 1, &err) == 0, err.msg);
		require(ex_service_start(s, &err) == 0, err.msg);
	}
	answer(s, true, (const char *)data, size);
	answer(s, false, (const char *)data, size);
	return 0;
}
