"""AITrainingJob, elasticdeeplearning.ai/v1."""
