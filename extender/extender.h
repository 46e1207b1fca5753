/* The extender in one include: the model behind its lock, and the HTTP server in front of it. */
#ifndef TESSERA_EXTENDER_H
#define TESSERA_EXTENDER_H

#include "extender/api.h"
#include "extender/metrics.h"
#include "extender/options.h"
#include "extender/server.h"
#include "extender/service.h"
#include "extender/verbs.h"

#endif
