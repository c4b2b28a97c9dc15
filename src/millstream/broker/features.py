"""Features that are new to a data folder: their levels are raised to those of a new folder.

A broker that is alone does so at its start. In a cluster an administrator does, once every broker knows the
feature.
"""

import logging

from millstream.broker.apis.api_versions import SUPPORTED_FEATURES
from millstream.cluster.commands import FeatureUpdate, UpdateFeatures, UpgradeType
from millstream.cluster.driver import Controller
from millstream.wire.errors import KafkaError

logger = logging.getLogger("millstream.broker")


async def finalize_new_features(controller: Controller) -> None:
    missing = [
        FeatureUpdate(name, highest, UpgradeType.UPGRADE)
        for name, (_, highest) in SUPPORTED_FEATURES.items()
        if name not in controller.image.features
    ]
    if missing:
        try:
            await controller.submit(UpdateFeatures(missing))
        except KafkaError as error:
            logger.error("feature levels are raised by a later start: %s", error)
            return
        logger.info(
            "feature levels raised: %s", ", ".join(f"{update.name}={update.level}" for update in missing)
        )
