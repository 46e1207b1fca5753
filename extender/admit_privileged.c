/* What neither scheduler nor node agent can keep from a container: one that is privileged sees every device,
 * and root in sm-sharing can talk to the MPS control daemon through the socket that it is given. */
#include <string.h>

#include "extender/admit.h"
#include "kube/object.h"

#define PRIVILEGED                                                                                 \
	"securityContext.privileged: \"true\" lets it use every GPU of its node, whatever it is given"
#define ROOT                                                                                       \
	"may run as root, which in sm-sharing can change the limits of MPS; set "                  \
	"securityContext.runAsNonRoot"

static const char *name_of(const cJSON *container)
{
	const cJSON *v = ku_json_get(container, "name");

	return cJSON_IsString(v) ? v->valuestring : "";
}

/* A field of the container's securityContext, else of the pod's. */
static const cJSON *security(const cJSON *spec, const cJSON *container, const char *field)
{
	const cJSON *own = ku_json_get(ku_json_get(container, "securityContext"), field);

	return own != NULL && !cJSON_IsNull(own)
		       ? own
		       : ku_json_get(ku_json_get(spec, "securityContext"), field);
}

static bool may_be_root(const cJSON *spec, const cJSON *container)
{
	const cJSON *user = security(spec, container, "runAsUser");

	if (cJSON_IsTrue(security(spec, container, "runAsNonRoot")))
		return false;
	return !cJSON_IsNumber(user) || user->valuedouble == 0;
}

static bool in_sm_sharing(const struct st_request *req, const char *container)
{
	for (int i = 0; i < req->item_count; i++) {
		const struct st_item *it = &req->items[i];

		if (it->kind == ST_KIND_SHARE && it->mode == ST_MODE_SM_SHARING &&
		    strcmp(it->container, container) == 0)
			return true;
	}
	return false;
}

int ex_admit_privileged(const cJSON *pod, const struct st_request *req, bool ephemeral, bool refuse,
			struct st_warnings *w, struct err *err)
{
	static const char *const own_lists[] = {"containers", "initContainers", NULL};
	static const char *const debug_lists[] = {"ephemeralContainers", NULL};
	const cJSON *spec = ku_json_get(pod, "spec"), *c;

	if (req->item_count == 0)
		return 0;
	for (const char *const *list = ephemeral ? debug_lists : own_lists; *list != NULL; list++) {
		cJSON_ArrayForEach(c, ku_json_get(spec, *list))
		{
			const cJSON *own = ku_json_get(c, "securityContext");
			bool all = cJSON_IsTrue(ku_json_get(own, "privileged"));

			if (all && refuse)
				return err_set(err, ERR_INVALID, "container \"%.63s\": %s",
					       name_of(c), PRIVILEGED);
			if (all)
				st_warn(w, "container \"%.63s\": %s", name_of(c), PRIVILEGED);
			if (in_sm_sharing(req, name_of(c)) && may_be_root(spec, c))
				st_warn(w, "container \"%.63s\": %s", name_of(c), ROOT);
		}
	}
	return 0;
}
