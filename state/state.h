/* Everything of state/ in one include. */
#ifndef TESSERA_STATE_H
#define TESSERA_STATE_H

#include "state/cluster.h"
#include "state/contract.h"
#include "state/mig.h"
#include "state/request.h"
#include "state/spec.h"

#endif
