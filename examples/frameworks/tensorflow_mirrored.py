"""TensorFlow MultiWorkerMirroredStrategy: gradients are summed over all processes."""

import sys
from typing import Any

from examples.frameworks.data import GOOD, KINDS, SIDE, TRAINING, UNSEEN
from examples.need import need

tf = need("tensorflow", "tensorflow-cpu")
EPOCHS, BATCH = 4, 64


def network() -> Any:
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((SIDE * SIDE,)),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(KINDS),
        ]
    )


def main() -> int:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG
    size, task = strategy.num_replicas_in_sync, strategy.cluster_resolver.task_id
    with strategy.scope():
        model = network()
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    measure = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def learn(pixels: Any, kinds: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = measure(kinds, model(pixels)) / BATCH
        # Gradients are summed over all processes.
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step = tf.function(lambda batch: strategy.reduce("SUM", strategy.run(learn, args=batch), axis=None))
    # TensorFlow gives each process its share of the data set.
    images = tf.data.Dataset.from_tensor_slices(tuple(TRAINING)).batch(BATCH, drop_remainder=True)
    for epoch in range(1, EPOCHS + 1):
        for batch in strategy.experimental_distribute_dataset(images):
            loss = step(batch)
        print(f"epoch {epoch} of {EPOCHS}: loss {float(loss):.4f}", flush=True)
    guessed = model(UNSEEN.pixels).numpy().argmax(axis=1)
    found = float((guessed == UNSEEN.kinds).mean())
    print(f"process {task} of {size}: accuracy {found:.3f}", flush=True)
    return 0 if found >= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
