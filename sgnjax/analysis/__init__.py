"""What can be known of a model beside its loss: costs, pictures, reports."""
